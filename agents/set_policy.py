"""The instance-set policy in torch: any number of instances, one score each, and no order among them.

    h_i = relu(encoder [x_i; r; c]);  pooled = mean of h_i over the instances that exist
    logit_i = out relu(head [h_i; pooled]) - SHARPNESS skip p_i

x_i, r and c are the rows of an instance, of the request and of the cluster (baselines/features.py); p_i is x_i, x_i
times the predicted output and x_i times the need of KV, each over its unit (units.py): a linear score as agents/cem.py
fits it (export.py has the factors), all of whose terms a step of Adam moves alike. baselines/learned/set_mlp.py
computes the same natively. Source: Deep Sets (Zaheer et al., 2017).

SetPolicy and MaskableSetPolicy are that as policies of Stable-Baselines3's PPO and sb3-contrib's MaskablePPO, with a
value head of their own that is not exported. Instances that do not accept the request have logit NOT_ACCEPTING, so
neither samples an illegal action.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from servegym.agents.units import units
from servegym.baselines.features import (
    CLUSTER_FEATURES,
    INSTANCE_FEATURES,
    N_CLUSTER,
    N_INSTANCE,
    N_REQUEST,
    REQUEST_FEATURES,
)

try:
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
    from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "agents.set_policy needs Stable-Baselines3: pip install 'servegym[rl]'"
    ) from error

HIDDEN = 32
N_PRODUCTS = 3 * N_INSTANCE
UNITS = np.where(
    units() > 0, units(), 1.0
)  # of p_i; 1 for `accepts`, the same for all that may be chosen
# A linear score with weights of size 1 is a decided policy, so that Adam, whose steps are of size lr, gets there; the
# network goes at a tenth of its pace: as fast, it lost what the score had learned.
SHARPNESS = 10.0
NOT_ACCEPTING = -1e8
EXISTS = "exists"  # part of an observation: 1 for each instance that is not padding
MANY_INSTANCES = 16.0  # scale of the critic's count of instances

ACCEPTS = [feature.name for feature in INSTANCE_FEATURES].index("accepts")
PREDICTED_OUTPUT = [feature.name for feature in REQUEST_FEATURES].index("predicted_output")
KV_NEED = [feature.name for feature in REQUEST_FEATURES].index("kv_need")
ROWS = {"cluster": CLUSTER_FEATURES, "instances": INSTANCE_FEATURES, "request": REQUEST_FEATURES}


class SetNetwork(nn.Module):
    """The actor: float32[B, M, 19] instances, [B, 6] request and [B, 5] cluster to logits float32[B, M].

    Its state_dict has the names and shapes of a `set-mlp` checkpoint; export.py has the factors between the two.
    """

    def __init__(self, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.hidden = hidden
        self.encoder = nn.Linear(N_INSTANCE + N_REQUEST + N_CLUSTER, hidden)
        self.head = nn.Linear(2 * hidden, hidden)
        self.out = nn.Linear(hidden, 1)
        self.skip = nn.Linear(N_PRODUCTS, 1, bias=False)
        self.units: torch.Tensor  # of p_i
        self.register_buffer("units", torch.tensor(UNITS, dtype=torch.float32), persistent=False)
        nn.init.orthogonal_(self.encoder.weight, 2**0.5)
        nn.init.orthogonal_(self.head.weight, 2**0.5)
        # Indifferent at first: a random network, played greedily, is a bad policy.
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.skip.weight)
        for layer in (self.encoder, self.head, self.out):
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        instances: torch.Tensor,
        request: torch.Tensor,
        cluster: torch.Tensor,
    ) -> torch.Tensor:
        """Return the logits of all instances, those that do not accept included."""
        shared = torch.cat([request, cluster], 1)
        of_instance, of_shared = self.encoder.weight.split([N_INSTANCE, N_REQUEST + N_CLUSTER], 1)
        common = torch.addmm(self.encoder.bias, shared, of_shared.T)
        h = torch.relu(instances @ of_instance.T + common[:, None])
        pooled = h.mean(1)
        of_own, of_pooled = self.head.weight.split([self.hidden, self.hidden], 1)
        common = torch.addmm(self.head.bias, pooled, of_pooled.T)
        g = torch.relu(h @ of_own.T + common[:, None])
        return self.out(g).squeeze(2) - SHARPNESS * self.linear_score(instances, request)

    def begin_with(self, score: np.ndarray) -> None:
        """Set the linear score, float64[3F] in units (units.py) (mutates the weights)."""
        with torch.no_grad():
            self.skip.weight.copy_(torch.tensor(score).view(1, -1))

    def learn_network(self, wanted: bool) -> None:
        """Let everything be learned, or the linear score alone (mutates which parameters have gradients)."""
        for layer in (self.encoder, self.head, self.out):
            layer.requires_grad_(wanted)

    def sharpen(self, factor: float) -> None:
        """Multiply the logits by a factor: the same greedy choices, and surer sampled ones (mutates the weights)."""
        with torch.no_grad():
            for tensor in (self.out.weight, self.out.bias, self.skip.weight):
                tensor.mul_(factor)

    def linear_score(self, instances: torch.Tensor, request: torch.Tensor) -> torch.Tensor:
        """Return skip . p_i, float32[B, M]; the products are taken into the weights, once a request."""
        alone, with_output, with_need = (self.skip.weight / self.units).view(3, N_INSTANCE)
        weight = (
            alone
            + request[:, PREDICTED_OUTPUT, None] * with_output
            + request[:, KV_NEED, None] * with_need
        )
        return torch.bmm(instances, weight[:, :, None]).squeeze(2)


class SetCritic(nn.Module):
    """The value of a state, float32[B, 1]: an MLP of the mean over instances of what a layer says of each."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        n_context = N_REQUEST + N_CLUSTER + 1
        self.encoder = nn.Linear(N_INSTANCE + n_context, hidden)
        self.layers = nn.Sequential(nn.Linear(hidden + n_context, hidden), nn.Tanh())
        self.out = nn.Linear(2 * hidden, 1)

    def forward(
        self, instances: torch.Tensor, request: torch.Tensor, cluster: torch.Tensor
    ) -> torch.Tensor:
        """Return float32[B, 1]."""
        count = torch.full_like(request[:, :1], instances.shape[1] / MANY_INSTANCES)
        context = torch.cat([request, cluster, count], 1)
        of_instance, of_context = self.encoder.weight.tensor_split([N_INSTANCE], 1)
        common = torch.addmm(self.encoder.bias, context, of_context.T)
        pooled = torch.tanh(instances @ of_instance.T + common[:, None]).mean(1)
        mixed = self.layers(torch.cat([pooled, context], 1))
        return self.out(torch.cat([pooled, mixed], 1))


class Rows(BaseFeaturesExtractor):
    """Hands the parts of an observation on: they are scaled already, and instances become rows."""

    def __init__(self, observation_space: spaces.Dict) -> None:
        super().__init__(observation_space, features_dim=1)

    def forward(self, observations: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the observations, instances as float32[B, M, N_INSTANCE]."""
        return with_rows(observations)


class SetActorCritic(nn.Module):
    """Actor and critic with the methods of Stable-Baselines3's MlpExtractor."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.actor, self.critic = SetNetwork(hidden), SetCritic()

    def forward(self, rows: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits float32[B, M] and values float32[B, 1]."""
        return self.forward_actor(rows), self.forward_critic(rows)

    def forward_actor(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the logits, NOT_ACCEPTING where an instance is padding or does not accept the request."""
        logits = torch.full_like(rows["instances"][:, :, 0], NOT_ACCEPTING)
        for which, (instances, request, cluster) in by_size(rows):
            found = self.actor(instances, request, cluster)
            found = torch.where(instances[:, :, ACCEPTS] > 0, found, NOT_ACCEPTING)
            logits[which, : instances.shape[1]] = found
        return logits

    def forward_critic(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the values."""
        values = torch.zeros_like(rows["request"][:, :1])
        for which, parts in by_size(rows):
            values[which] = self.critic(*parts)
        return values


Which = torch.Tensor | slice
Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def by_size(rows: dict[str, torch.Tensor]) -> Iterator[tuple[Which, Parts]]:
    """Yield the observations of each fleet size: which they are, and instances, request and cluster without padding."""
    instances, request, cluster = rows["instances"], rows["request"], rows["cluster"]
    if EXISTS not in rows:
        yield slice(None), (instances, request, cluster)
        return
    sizes = rows[EXISTS].sum(1).long()
    for m in torch.nonzero(torch.bincount(sizes)).flatten().tolist():
        which = torch.nonzero(sizes == m).squeeze(1)
        yield which, (instances[which, :m], request[which], cluster[which])


class SetPolicyParts(BasePolicy):
    """What SetPolicy and MaskableSetPolicy share: the networks in the places where Stable-Baselines3 has its own."""

    optimizer_class: Any
    optimizer_kwargs: dict[str, Any]

    def __init__(self, *args: Any, hidden: int = HIDDEN, **kwargs: Any) -> None:
        self.hidden = hidden
        kwargs |= {"features_extractor_class": Rows}
        space = args[0] if args else kwargs["observation_space"]
        actions = args[1] if len(args) > 1 else kwargs["action_space"]
        check_spaces(space, actions)
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        self.mlp_extractor = SetActorCritic(self.hidden)
        self.action_net, self.value_net = nn.Identity(), nn.Identity()
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        kept = super()._get_constructor_parameters() | {"hidden": self.hidden}
        kept.pop("features_extractor_class", None)
        return kept

    @property
    def actor(self) -> SetNetwork:
        """The network that is exported."""
        return self.mlp_extractor.actor


class SetPolicy(SetPolicyParts, ActorCriticPolicy):
    """The instance-set policy for Stable-Baselines3's PPO; hidden: the width of its layers."""


class MaskableSetPolicy(SetPolicyParts, MaskableActorCriticPolicy):
    """The instance-set policy for sb3-contrib's MaskablePPO; hidden: the width of its layers."""


def rows_of(instances: Any) -> Any:
    """Return float32[..., M, N_INSTANCE], an array or a tensor, for an environment's float32[..., M * N_INSTANCE]."""
    return instances.reshape(*instances.shape[:-1], -1, N_INSTANCE)


def with_rows(parts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return observations with instances as float32[B, M, N_INSTANCE], as they are already in a FleetVecEnv's."""
    instances = parts["instances"]
    return parts if instances.ndim == 3 else parts | {"instances": rows_of(instances)}


def check_spaces(space: spaces.Space, actions: spaces.Space) -> None:
    """ValueError unless observations have instances, request and cluster in whole rows, and actions are instances."""
    for part, features in ROWS.items():
        found = space.spaces.get(part) if isinstance(space, spaces.Dict) else None
        size = 0 if found is None else int(np.prod(found.shape or 0))
        n_rows = size // len(features) if part == "instances" else 1
        if size == 0 or size != n_rows * len(features):
            raise ValueError(
                f"observations are {space}; the set policy needs flatten=False and all {len(features)} "
                f"features of {part}"
            )
        if part == "instances" and actions != spaces.Discrete(n_rows):
            raise ValueError(
                f"actions are {actions}; the set policy chooses one of the instances, for which observations have "
                f"{size} values, {len(features)} each"
            )


def tensors_of(rows: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return the parts of observations as tensors, instances as float32[B, M, N_INSTANCE]."""
    return with_rows({part: torch.as_tensor(row) for part, row in rows.items()})
