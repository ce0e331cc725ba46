"""Plausible wrong implementations that the reference can compute on purpose.

Each name switches one deviation on in `k3_reference.py`. A fixture is worth its bytes only if
such a deviation changes its numbers far beyond the tolerance: `test_reference.py` checks that.
"""

from __future__ import annotations

Mutations = frozenset[str]
NONE: Mutations = frozenset()

# name -> the wrong implementation
CATALOGUE: dict[str, str] = {
    # elementary functions
    "eps_outside_root": "rmsnorm divides by sqrt(mean) + eps",
    "capped_gate_in_sigmoid": "SiTU: the sigmoid takes the tanh-capped gate",
    "situ_up_uncapped": "SiTU: the up half enters without its tanh cap",
    "situ_as_swiglu": "plain silu(gate) * up instead of SiTU",
    # decoder layer and block attention residuals
    "residual_kept_at_boundary": "the residual goes on after it was pushed as a snapshot",
    "boundary_one_based": "snapshots at (layer + 1) % block instead of layer % block",
    "aggregate_keys": "the aggregate sums the normalised keys, not the raw sources",
    "aggregate_without_residual": "the aggregate before the MLP leaves the running residual out",
    "aggregate_norm_missing": "the aggregate's norm gain is not folded into the projection",
    "attention_aggregate_missing": "attention reads the residual itself",
    "mlp_aggregate_missing": "the MLP reads the residual itself",
    "final_aggregate_missing": "the last residual goes to the final norm unaggregated",
    "tied_head": "the head reuses the embedding",
    # Kimi Delta Attention
    "per_channel_a_log": "A_log is indexed by channel, not by head",
    "padded_a_log_garbage": "A_log is read from its padded end",
    "softplus_decay": "g = -exp(A_log) * softplus(z), as in Kimi Linear",
    "dt_bias_outside_scale": "dt_bias is added after exp(A_log) has scaled",
    "dt_bias_missing": "dt_bias is not added",
    "conv_taps_reversed": "the first tap multiplies the current input",
    "conv_without_silu": "no SiLU after the short convolution",
    "l2norm_by_mean": "q and k are divided by the root of the mean square",
    "v_l2_normalised": "v is l2-normalised like q and k",
    "q_not_scaled": "q misses its factor D^-0.5",
    "beta_not_sigmoid": "beta enters raw",
    "delta_rule_missing": "plain linear attention: v is stored without the state's answer",
    "decay_on_value_axis": "alpha decays the columns of the state",
    "decay_after_update": "alpha decays the state after the update",
    "output_from_old_state": "o is read before the update",
    "o_norm_over_all_heads": "o is normalised over all heads at once",
    "gate_before_norm": "o is gated before its norm",
    "kda_gate_missing": "o is not gated",
    # Gated MLA
    "scale_by_nope": "scores are scaled by qk_nope^-0.5",
    "rotated_rope": "q_rope and k_rope are rotated by position",
    "dropped_rope": "scores leave the rope part out",
    "norm_whole_kv_a": "k_rope is normalised together with the latent",
    "latent_norm_missing": "the latent is not normalised",
    "latent_eps_1e-6": "the q_a and kv_a norms use an eps of 1e-6",
    "kv_b_not_per_head": "kv_b holds the keys of all heads, then their values",
    "attention_not_causal": "a query sees later positions",
    "mla_gate_missing": "o is not gated",
    # Stable LatentMoE
    "selection_by_unbiased": "the router selects by the unbiased scores",
    "biased_combining_weights": "the combining weights are the biased scores",
    "softmax_router": "scores are a softmax over the experts",
    "renormalize_missing": "the combining weights are not renormalised",
    "renormalize_always": "renormalised although switched off, or a single expert is chosen",
    "scaling_missing": "routed_scaling_factor is not applied",
    "norm_each_expert": "every expert's output is normalised, not the sum",
    "latent_norm_of_moe_missing": "the sum of the experts is not normalised",
    "shared_scaled": "the shared experts are scaled by routed_scaling_factor",
    "shared_missing": "the shared experts are left out",
    "shared_on_latent": "the shared experts read the latent (needs L = E)",
    "router_on_latent": "the router reads the latent (needs L = E)",
    "w1_w3_swapped": "gate and up of the routed experts are swapped",
    # MXFP4 and storage
    "swapped_nibbles": "the low nibble is the odd element",
    "scale_255_as_value": "the scale byte 255 counts as 2^0",
    "scale_bias_126": "the scale is 2^(byte - 126)",
    "f32_read_as_bf16": "F32 and F16 tensors are rounded to bfloat16",
}
