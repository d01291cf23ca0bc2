"""A scene in a window, where matplotlib has one to offer."""

import gymnasium
import numpy as np

NO_WINDOW = (
    "render_mode 'human' needs a matplotlib backend with windows (a display, and Tk or Qt); this one is {backend!r}. "
    "Use render_mode 'ansi' for text, or 'rgb_array' for frames."
)


class Window:
    """One window that shows frames; opened with the first.

    Raises gymnasium.error.DependencyNotInstalled where matplotlib's backend has no windows.
    """

    def __init__(self, title: str = "servegym") -> None:
        self.title = title
        self._figure = None
        self._image = None

    def show(self, frame: np.ndarray) -> None:
        """Show a frame, uint8[H, W, 3], and let the window live for a moment."""
        if self._figure is None or self._image is None:
            self._open(frame)
        else:
            self._image.set_data(frame)
        assert self._figure is not None
        self._figure.canvas.draw_idle()
        self._figure.canvas.flush_events()

    def _open(self, frame: np.ndarray) -> None:
        import matplotlib.pyplot as plt

        dpi = 100
        try:
            figure = plt.figure(
                self.title, figsize=(frame.shape[1] / dpi, frame.shape[0] / dpi), dpi=dpi
            )
        except ImportError as error:  # the backend that was asked for cannot be loaded
            raise gymnasium.error.DependencyNotInstalled(
                NO_WINDOW.format(backend=plt.rcParams["backend"])
            ) from error
        if figure.canvas.required_interactive_framework is None:
            plt.close(figure)
            raise gymnasium.error.DependencyNotInstalled(
                NO_WINDOW.format(backend=plt.get_backend())
            )
        self._figure = figure
        self._image = figure.figimage(frame)
        figure.show()

    def close(self) -> None:
        """Close the window, if it is open; a later frame opens it again."""
        if self._figure is not None:
            import matplotlib.pyplot as plt

            plt.close(self._figure)
        self._figure = self._image = None
