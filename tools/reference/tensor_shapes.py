"""Names and shapes of the trunk tensors that a configuration calls for."""

from __future__ import annotations

from k3_config import K3Config

PREFIX = "language_model."


def trunk_shapes(config: K3Config, layer: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a layer without its routed experts; names without the layer's prefix."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {}
    for which in ("self_attention_res", "mlp_res"):
        shapes[f"{which}_norm.weight"] = (hidden,)
        shapes[f"{which}_proj.weight"] = (1, hidden)
    for which in ("input_layernorm", "post_attention_layernorm"):
        shapes[f"{which}.weight"] = (hidden,)
    attention = mla_shapes(config) if config.is_mla(layer) else kda_shapes(config)
    shapes.update({f"self_attn.{name}": shape for name, shape in attention.items()})
    if config.is_dense(layer):
        shapes.update(mlp_shapes("mlp.", hidden, config.intermediate_size))
    else:
        moe = moe_shapes(config)
        shapes.update({f"block_sparse_moe.{name}": shape for name, shape in moe.items()})
    return shapes


def kda_shapes(config: K3Config) -> dict[str, tuple[int, ...]]:
    hidden, width = config.hidden_size, config.kda_width
    shapes: dict[str, tuple[int, ...]] = {}
    for which in "qkv":
        shapes[f"{which}_proj.weight"] = (width, hidden)
        shapes[f"{which}_conv1d.weight"] = (width, 1, config.short_conv_kernel_size)
    return shapes | {
        "f_a_proj.weight": (config.kda_head_dim, hidden),
        "f_b_proj.weight": (width, config.kda_head_dim),
        "A_log": (config.kda_num_heads,),
        "dt_bias": (width,),
        "b_proj.weight": (config.kda_num_heads, hidden),
        "o_norm.weight": (config.kda_head_dim,),
        "g_proj.weight": (width, hidden),
        "o_proj.weight": (hidden, width),
    }


def mla_shapes(config: K3Config) -> dict[str, tuple[int, ...]]:
    hidden, heads = config.hidden_size, config.num_attention_heads
    shapes: dict[str, tuple[int, ...]] = {
        "q_a_proj.weight": (config.q_lora_rank, hidden),
        "q_a_layernorm.weight": (config.q_lora_rank,),
        "q_b_proj.weight": (heads * config.qk_head_dim, config.q_lora_rank),
        "kv_a_proj_with_mqa.weight": (config.kv_lora_rank + config.qk_rope_head_dim, hidden),
        "kv_a_layernorm.weight": (config.kv_lora_rank,),
        "kv_b_proj.weight": (
            heads * (config.qk_nope_head_dim + config.v_head_dim),
            config.kv_lora_rank,
        ),
        "o_proj.weight": (hidden, heads * config.v_head_dim),
    }
    if config.mla_use_output_gate:
        shapes["g_proj.weight"] = (heads * config.v_head_dim, hidden)
    return shapes


def moe_shapes(config: K3Config) -> dict[str, tuple[int, ...]]:
    hidden, latent = config.hidden_size, config.routed_expert_hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "gate.weight": (config.num_experts, hidden),
        "gate.e_score_correction_bias": (config.num_experts,),
        "routed_expert_down_proj.weight": (latent, hidden),
        "routed_expert_up_proj.weight": (hidden, latent),
    }
    if config.latent_moe_use_norm:
        shapes["routed_expert_norm.weight"] = (latent,)
    return shapes | mlp_shapes("shared_experts.", hidden, config.shared_width)


def mlp_shapes(prefix: str, hidden: int, inner: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}gate_proj.weight": (inner, hidden),
        f"{prefix}up_proj.weight": (inner, hidden),
        f"{prefix}down_proj.weight": (hidden, inner),
    }


def model_shapes(config: K3Config) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden_size
    return {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "lm_head.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
        "model.output_attn_res_norm.weight": (hidden,),
        "model.output_attn_res_proj.weight": (1, hidden),
    }
