"""The Kimi K3 text model in plain PyTorch, naive and readable.

Written from the model specification alone; "section N" means its sections. Attention expands keys
and values, every forward pass recomputes the whole prefix, and nothing is fused. Shapes: T tokens,
E hidden, H heads, D head width, L latent, I expert inner width, N experts, V vocabulary.

`mutations` switches deliberate errors on (see `mutations.py`); empty is the truth.
"""

from __future__ import annotations

import dataclasses
from typing import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import softplus

from k3_config import K3Config
from k3_weights import Checkpoint
from mutations import NONE, Mutations

LayerWeights = Mapping[str, Tensor]  # names without the prefix of the layer

# ---- section 1: elementary functions ----------------------------------------------------------


def rmsnorm(x: Tensor, weight: Tensor | None, eps: float, mutations: Mutations = NONE) -> Tensor:
    """Over the last axis. The mean of squares accumulates in double."""
    mean_square = x.double().square().mean(-1, keepdim=True)
    if "eps_outside_root" in mutations:
        inverse = 1.0 / (mean_square.sqrt() + eps)
    else:
        inverse = 1.0 / (mean_square + eps).sqrt()
    normalised = x * inverse.to(x.dtype)
    return normalised if weight is None else weight * normalised


def l2norm(x: Tensor, mutations: Mutations = NONE) -> Tensor:
    """Over the last axis: the sum of squares, not their mean."""
    total = x.square().sum(-1, keepdim=True)
    if "l2norm_by_mean" in mutations:
        total = total / x.shape[-1]
    return x / (total + 1e-6).sqrt()


def sigmoid(z: Tensor) -> Tensor:
    return torch.sigmoid(z)


def silu(z: Tensor) -> Tensor:
    return z * sigmoid(z)


def situ_glu(
    gate: Tensor, up: Tensor, b1: float, b2: float, mutations: Mutations = NONE
) -> Tensor:
    """The sigmoid takes the uncapped gate; |result| <= b1 * b2."""
    if "situ_as_swiglu" in mutations:
        return silu(gate) * up
    capped = b1 * torch.tanh(gate / b1)
    a = capped * sigmoid(capped if "capped_gate_in_sigmoid" in mutations else gate)
    u = up if "situ_up_uncapped" in mutations else b2 * torch.tanh(up / b2)
    return a * u


def linear(weight: Tensor, x: Tensor) -> Tensor:
    """weight [out][in], x [..., in] -> [..., out]."""
    return x @ weight.T


# ---- section 3: block attention residuals -----------------------------------------------------


def aggregate(
    sources: Sequence[Tensor],  # each [T, E], oldest snapshot first, running residual last
    norm_w: Tensor,  # [E]
    proj_w: Tensor,  # [E] or [1, E]
    eps: float,
    mutations: Mutations = NONE,
) -> Tensor:  # [T, E]
    stack = torch.stack(list(sources))  # [source, T, E]
    keys = rmsnorm(stack, None, eps, mutations)
    proj = proj_w.reshape(-1)
    folded = proj if "aggregate_norm_missing" in mutations else norm_w * proj
    probability = torch.softmax(keys @ folded, dim=0)  # [source, T]
    values = keys if "aggregate_keys" in mutations else stack
    return (probability.unsqueeze(-1) * values).sum(0)


# ---- section 4: Kimi Delta Attention ----------------------------------------------------------


def short_conv(
    x: Tensor,  # [T, C]
    weight: Tensor,  # [C, K], oldest tap first
    tail: Tensor | None = None,  # [K-1, C], oldest first: the inputs before x; None: zeros
    mutations: Mutations = NONE,
) -> tuple[Tensor, Tensor]:  # silu(conv) [T, C], new tail [K-1, C]
    tokens, kernel = x.shape[0], weight.shape[1]
    if tail is None:
        tail = x.new_zeros(kernel - 1, x.shape[1])
    history = torch.cat([tail, x])  # [K-1+T, C]
    taps = weight.flip(1) if "conv_taps_reversed" in mutations else weight
    y = torch.zeros_like(x)
    for tap in range(kernel):
        y = y + taps[:, tap] * history[tap : tap + tokens]
    if "conv_without_silu" not in mutations:
        y = silu(y)
    return y, history[tokens:]


def kda_decay(
    z: Tensor,  # [T, H, D]: Wf_b (Wf_a x), before dt_bias
    a_log: Tensor,  # [at least H]
    dt_bias: Tensor,  # [H*D]
    lower_bound: float,
    mutations: Mutations = NONE,
) -> Tensor:  # g [T, H, D] in (lower_bound, 0)
    heads, width = z.shape[1], z.shape[2]
    bias = torch.zeros_like(dt_bias) if "dt_bias_missing" in mutations else dt_bias
    bias = bias.reshape(heads, width)
    if "per_channel_a_log" in mutations:
        rate = a_log[:width].exp()  # [D]
    elif "padded_a_log_garbage" in mutations:
        rate = a_log[-heads:].exp().reshape(heads, 1)
    else:
        rate = a_log[:heads].exp().reshape(heads, 1)
    if "softplus_decay" in mutations:
        return -rate * softplus(z + bias)
    if "dt_bias_outside_scale" in mutations:
        return lower_bound * sigmoid(rate * z + bias)
    return lower_bound * sigmoid(rate * (z + bias))


def kda_step(
    state: Tensor,  # [H, D, D]: key rows, value columns
    q: Tensor,  # [H, D], already scaled
    k: Tensor,  # [H, D]
    v: Tensor,  # [H, D]
    alpha: Tensor,  # [H, D]
    beta: Tensor,  # [H]
    mutations: Mutations = NONE,
) -> tuple[Tensor, Tensor]:  # o [H, D], new state
    old = state
    decay = alpha.unsqueeze(1 if "decay_on_value_axis" in mutations else 2)
    if "decay_after_update" not in mutations:
        state = decay * state
    u = torch.einsum("hij,hi->hj", state, k)
    if "delta_rule_missing" in mutations:
        u = torch.zeros_like(u)
    state = state + torch.einsum("hi,hj->hij", k, beta.unsqueeze(-1) * (v - u))
    if "decay_after_update" in mutations:
        state = decay * state
    read = old if "output_from_old_state" in mutations else state
    return torch.einsum("hij,hi->hj", read, q), state


def kda_attention(
    x: Tensor, w: LayerWeights, config: K3Config, mutations: Mutations = NONE
) -> tuple[Tensor, Tensor]:  # x [T, E] -> [T, E], final state [H, D, D]
    tokens, heads, width = x.shape[0], config.kda_num_heads, config.kda_head_dim

    def projected(which: str) -> Tensor:  # [T, H, D]
        taps = w[f"self_attn.{which}_conv1d.weight"].reshape(heads * width, -1)
        y = linear(w[f"self_attn.{which}_proj.weight"], x)
        return short_conv(y, taps, None, mutations)[0].reshape(tokens, heads, width)

    q, k, v = projected("q"), projected("k"), projected("v")
    q, k = l2norm(q, mutations), l2norm(k, mutations)
    if "v_l2_normalised" in mutations:
        v = l2norm(v)
    if "q_not_scaled" not in mutations:
        q = q * width**-0.5
    beta = linear(w["self_attn.b_proj.weight"], x)  # [T, H]
    if "beta_not_sigmoid" not in mutations:
        beta = sigmoid(beta)
    z = linear(w["self_attn.f_b_proj.weight"], linear(w["self_attn.f_a_proj.weight"], x))
    alpha = kda_decay(
        z.reshape(tokens, heads, width),
        w["self_attn.A_log"],
        w["self_attn.dt_bias"],
        config.gate_lower_bound,
        mutations,
    ).exp()

    state = x.new_zeros(heads, width, width)
    outputs = []
    for t in range(tokens):
        o, state = kda_step(state, q[t], k[t], v[t], alpha[t], beta[t], mutations)
        outputs.append(o)
    o = torch.stack(outputs)  # [T, H, D]
    gate = sigmoid(linear(w["self_attn.g_proj.weight"], x)).reshape(tokens, heads, width)
    o = kda_output(o, gate, w["self_attn.o_norm.weight"], config.rms_norm_eps, mutations)
    return linear(w["self_attn.o_proj.weight"], o.reshape(tokens, -1)), state


def kda_output(
    o: Tensor,  # [T, H, D]
    gate: Tensor,  # [T, H, D], after the sigmoid
    o_norm: Tensor,  # [D]
    eps: float,
    mutations: Mutations = NONE,
) -> Tensor:  # [T, H, D]
    if "kda_gate_missing" in mutations:
        gate = torch.ones_like(gate)
    if "gate_before_norm" in mutations:
        return rmsnorm(o * gate, o_norm, eps, mutations)
    if "o_norm_over_all_heads" in mutations:
        flat = rmsnorm(o.reshape(o.shape[0], -1), None, eps, mutations)
        return o_norm * flat.reshape(o.shape) * gate
    return rmsnorm(o, o_norm, eps, mutations) * gate


# ---- section 5: Gated MLA (NoPE) --------------------------------------------------------------


def mla_scores_values(
    q_nope: Tensor,  # [T, H, nope]
    q_rope: Tensor,  # [T, H, rope]
    latent: Tensor,  # [P, kv_lora], normalised; the queries are the last T of the P positions
    k_rope: Tensor,  # [P, rope]
    kv_b: Tensor,  # [H*(nope+v), kv_lora]
    mutations: Mutations = NONE,
) -> Tensor:  # o [T, H, v]
    tokens, heads, nope = q_nope.shape
    positions, rope = k_rope.shape
    kv = linear(kv_b, latent)  # [P, H*(nope+v)]
    if "kv_b_not_per_head" in mutations:
        k_nope = kv[:, : heads * nope].reshape(positions, heads, nope)
        v = kv[:, heads * nope :].reshape(positions, heads, -1)
    else:
        k_nope, v = kv.reshape(positions, heads, -1).split([nope, kv.shape[1] // heads - nope], -1)
    if "rotated_rope" in mutations:
        index = torch.arange(positions)
        q_rope = rotate(q_rope, index[positions - tokens :])
        k_rope = rotate(k_rope.unsqueeze(1), index).squeeze(1)
    scores = torch.einsum("thd,phd->htp", q_nope, k_nope)
    if "dropped_rope" not in mutations:
        scores = scores + torch.einsum("thd,pd->htp", q_rope, k_rope)
    scores = scores * (nope if "scale_by_nope" in mutations else nope + rope) ** -0.5
    if "attention_not_causal" not in mutations:
        last = torch.arange(positions - tokens, positions).unsqueeze(1)  # [T, 1]
        scores = scores.masked_fill(torch.arange(positions) > last, -torch.inf)
    return torch.einsum("htp,phd->thd", torch.softmax(scores, dim=-1), v)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of x [T, heads, rope], base 10000, interleaved pairs: a mutation only."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = positions.double()[:, None, None] * frequency  # [T, 1, rope/2]
    cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1)
    return pairs.flatten(-2)


def mla_attention(
    x: Tensor, w: LayerWeights, config: K3Config, mutations: Mutations = NONE
) -> Tensor:  # [T, E] -> [T, E]
    tokens, heads, latent_width = x.shape[0], config.num_attention_heads, config.kv_lora_rank
    eps = 1e-6 if "latent_eps_1e-6" in mutations else config.rms_norm_eps
    q_a = linear(w["self_attn.q_a_proj.weight"], x)
    q_a = rmsnorm(q_a, w["self_attn.q_a_layernorm.weight"], eps, mutations)
    q = linear(w["self_attn.q_b_proj.weight"], q_a).reshape(tokens, heads, config.qk_head_dim)
    q_nope, q_rope = q.split([config.qk_nope_head_dim, config.qk_rope_head_dim], -1)

    c = linear(w["self_attn.kv_a_proj_with_mqa.weight"], x)  # [T, kv_lora + rope]
    if "norm_whole_kv_a" in mutations:
        c = rmsnorm(c, None, eps, mutations)
    latent, k_rope = c[:, :latent_width], c[:, latent_width:]
    if "latent_norm_missing" in mutations or "norm_whole_kv_a" in mutations:
        latent = w["self_attn.kv_a_layernorm.weight"] * latent
    else:
        latent = rmsnorm(latent, w["self_attn.kv_a_layernorm.weight"], eps, mutations)

    kv_b = w["self_attn.kv_b_proj.weight"]
    o = mla_scores_values(q_nope, q_rope, latent, k_rope, kv_b, mutations).reshape(tokens, -1)
    if config.mla_use_output_gate and "mla_gate_missing" not in mutations:
        o = o * sigmoid(linear(w["self_attn.g_proj.weight"], x))
    return linear(w["self_attn.o_proj.weight"], o)


# ---- section 6: Stable LatentMoE --------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Route:
    experts: Tensor  # [T, k] int64, by descending selection score
    weights: Tensor  # [T, k]
    selection: Tensor  # [T, N]: the scores that the selection was made by


def router(
    x: Tensor,  # [T, E]
    gate: Tensor,  # [N, E]
    bias: Tensor,  # [N]
    config: K3Config,
    mutations: Mutations = NONE,
) -> Route:
    logits = linear(gate, x)  # [T, N]
    softmaxed = "softmax_router" in mutations
    score = torch.softmax(logits, -1) if softmaxed else sigmoid(logits)
    biased = score + bias
    selection = score if "selection_by_unbiased" in mutations else biased
    # a stable descending sort leaves ties in the order of their index
    order = torch.sort(selection, dim=-1, descending=True, stable=True).indices
    experts = order[:, : config.num_experts_per_token]
    weights = (biased if "biased_combining_weights" in mutations else score).gather(-1, experts)
    renormalize = config.moe_renormalize and config.num_experts_per_token > 1
    if "renormalize_always" in mutations:
        renormalize = True
    if renormalize and "renormalize_missing" not in mutations:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    if "scaling_missing" not in mutations:
        weights = weights * config.routed_scaling_factor
    return Route(experts, weights, selection)


def mlp(
    x: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, config: K3Config, mutations: Mutations = NONE
) -> Tensor:
    """w2 situ_glu(w1 x, w3 x): a dense MLP, the shared experts, or one routed expert."""
    gate, up = linear(w1, x), linear(w3, x)
    hidden = situ_glu(gate, up, config.situ_beta, config.situ_linear_beta, mutations)
    return linear(w2, hidden)


def latent_moe(
    x: Tensor, w: LayerWeights, config: K3Config, mutations: Mutations = NONE
) -> tuple[Tensor, Route]:  # x [T, E] -> [T, E]
    moe = "block_sparse_moe."
    z = linear(w[moe + "routed_expert_down_proj.weight"], x)  # [T, L]
    route = router(
        z if "router_on_latent" in mutations else x,
        w[moe + "gate.weight"],
        w[moe + "gate.e_score_correction_bias"],
        config,
        mutations,
    )
    total = torch.stack([routed_sum(z[t], t, route, w, config, mutations) for t in range(len(x))])
    unnormed = {"norm_each_expert", "latent_norm_of_moe_missing"}
    if config.latent_moe_use_norm and not mutations & unnormed:
        total = rmsnorm(
            total, w[moe + "routed_expert_norm.weight"], config.rms_norm_eps, mutations
        )
    y = linear(w[moe + "routed_expert_up_proj.weight"], total)
    if "shared_missing" in mutations:
        return y, route
    shared = mlp(
        z if "shared_on_latent" in mutations else x,
        w[moe + "shared_experts.gate_proj.weight"],
        w[moe + "shared_experts.up_proj.weight"],
        w[moe + "shared_experts.down_proj.weight"],
        config,
        mutations,
    )
    factor = config.routed_scaling_factor if "shared_scaled" in mutations else 1.0
    return y + factor * shared, route


def routed_sum(
    z: Tensor, t: int, route: Route, w: LayerWeights, config: K3Config, mutations: Mutations
) -> Tensor:  # z [L] of token t -> [L]: the weighted sum in selection order
    total = torch.zeros_like(z)
    for expert, weight in zip(route.experts[t].tolist(), route.weights[t]):
        prefix = f"block_sparse_moe.experts.{expert}."
        w1, w3, w2 = w[prefix + "w1"], w[prefix + "w3"], w[prefix + "w2"]
        if "w1_w3_swapped" in mutations:
            w1, w3 = w3, w1
        y = mlp(z, w1, w3, w2, config, mutations)
        if "norm_each_expert" in mutations and config.latent_moe_use_norm:
            gain = w["block_sparse_moe.routed_expert_norm.weight"]
            y = rmsnorm(y, gain, config.rms_norm_eps, mutations)
        total = total + weight * y
    return total


# ---- section 3: decoder layer -----------------------------------------------------------------


def decoder_layer(
    layer: int,  # zero-based
    r: Tensor,  # [T, E] running residual
    snapshots: list[Tensor],  # B: grows on a boundary layer
    w: LayerWeights,
    config: K3Config,
    mutations: Mutations = NONE,
) -> tuple[Tensor, Route | None]:  # new residual
    eps = config.rms_norm_eps
    # 1. what attention reads
    h = r
    if snapshots and "attention_aggregate_missing" not in mutations:
        norm_w, proj_w = _aggregator(w, "self_attention_res")
        h = aggregate([*snapshots, r], norm_w, proj_w, eps, mutations)
    # 2. snapshot on a boundary: the residual starts anew
    running: Tensor | None = r
    boundary = layer + 1 if "boundary_one_based" in mutations and layer else layer
    if boundary % config.attn_res_block_size == 0:
        snapshots.append(r)
        running = r if "residual_kept_at_boundary" in mutations else None
    # 3. attention
    x = rmsnorm(h, w["input_layernorm.weight"], eps, mutations)
    if config.is_mla(layer):
        a = mla_attention(x, w, config, mutations)
    else:
        a, _ = kda_attention(x, w, config, mutations)
    r = a if running is None else running + a
    # 4. what the MLP reads
    h = r
    if "mlp_aggregate_missing" not in mutations:
        norm_w, proj_w = _aggregator(w, "mlp_res")
        sources = snapshots if "aggregate_without_residual" in mutations else [*snapshots, r]
        h = aggregate(sources, norm_w, proj_w, eps, mutations)
    # 5. MLP
    x = rmsnorm(h, w["post_attention_layernorm.weight"], eps, mutations)
    if config.is_dense(layer):
        gate, up = w["mlp.gate_proj.weight"], w["mlp.up_proj.weight"]
        return r + mlp(x, gate, up, w["mlp.down_proj.weight"], config, mutations), None
    m, route = latent_moe(x, w, config, mutations)
    return r + m, route


def _aggregator(w: LayerWeights, which: str) -> tuple[Tensor, Tensor]:
    return w[f"{which}_norm.weight"], w[f"{which}_proj.weight"]


@dataclasses.dataclass(frozen=True)
class Forward:
    logits: Tensor  # [T, V]
    residuals: Tensor  # [layers+1, T, E]: the embedding, then the residual after every layer
    routes: list[Route]  # of the layers with experts, in order


class K3Model:
    """A checkpoint at one precision; `mutations` as in `mutations.py`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype = torch.float64,
        mutations: Mutations = NONE,
    ) -> None:
        self.config = checkpoint.config
        self.mutations = mutations
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._model = checkpoint.model_weights(dtype, mutations)
        self._layers: dict[int, LayerWeights] = {}

    def layer_weights(self, layer: int) -> LayerWeights:
        if layer not in self._layers:
            read = self._checkpoint.layer_weights
            self._layers[layer] = read(layer, self._dtype, self.mutations)
        return self._layers[layer]

    def forward(self, ids: Sequence[int], layers: int | None = None) -> Forward:
        """Logits of every position, through the first `layers` layers (all by default)."""
        count = self.config.num_hidden_layers if layers is None else layers
        r = self._model["model.embed_tokens.weight"][torch.tensor(list(ids))]  # [T, E]
        residuals, snapshots, routes = [r], [], []
        for layer in range(count):
            r, route = decoder_layer(
                layer, r, snapshots, self.layer_weights(layer), self.config, self.mutations
            )
            residuals.append(r)
            if route is not None:
                routes.append(route)
        return Forward(self._logits(r, snapshots), torch.stack(residuals), routes)

    def _logits(self, r: Tensor, snapshots: list[Tensor]) -> Tensor:
        eps, m = self.config.rms_norm_eps, self.mutations
        h = r
        if "final_aggregate_missing" not in m:
            norm_w, proj_w = _aggregator(self._model, "model.output_attn_res")
            h = aggregate([*snapshots, r], norm_w, proj_w, eps, m)
        h = rmsnorm(h, self._model["model.norm.weight"], eps, m)
        head = "model.embed_tokens.weight" if "tied_head" in m else "lm_head.weight"
        return linear(self._model[head], h)

    def greedy(self, ids: Sequence[int], count: int, layers: int | None = None) -> list[int]:
        """The next `count` ids, each from a forward pass over the whole prefix."""
        full = list(ids)
        for _ in range(count):
            full.append(int(self.forward(full, layers).logits[-1].argmax()))
        return full[len(ids) :]
