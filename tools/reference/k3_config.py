"""Dimensions of a K3 text model, read from and written to `config.json`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

# Field of K3Config -> key inside `text_config.linear_attn_config`.
_LINEAR_ATTN_KEYS = {
    "kda_num_heads": "num_heads",
    "kda_head_dim": "head_dim",
    "short_conv_kernel_size": "short_conv_kernel_size",
    "gate_lower_bound": "gate_lower_bound",
    "full_attn_layers": "full_attn_layers",
}
# Field of K3Config -> key inside `text_config`, where the two differ.
_NESTED_RENAMED = {
    "situ_beta": "activation_situ_beta",
    "situ_linear_beta": "activation_situ_linear_beta",
}


@dataclasses.dataclass(frozen=True)
class K3Config:
    """Field names are the keys of the flat shape of `config.json`."""

    hidden_size: int  # E
    num_hidden_layers: int
    vocab_size: int  # V
    rms_norm_eps: float
    # Kimi Delta Attention
    kda_num_heads: int  # H
    kda_head_dim: int  # D
    short_conv_kernel_size: int
    gate_lower_bound: float
    full_attn_layers: tuple[int, ...]  # one-based: these layers are Gated MLA
    # Gated MLA
    num_attention_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    mla_use_output_gate: bool
    # Stable LatentMoE
    num_experts: int
    num_experts_per_token: int
    num_shared_experts: int
    routed_expert_hidden_size: int  # L
    moe_intermediate_size: int  # I
    routed_scaling_factor: float
    moe_renormalize: bool
    latent_moe_use_norm: bool
    # dense layers, block attention residuals, SiTU
    first_k_dense_replace: int
    intermediate_size: int
    attn_res_block_size: int
    situ_beta: float
    situ_linear_beta: float

    @property
    def kda_width(self) -> int:
        return self.kda_num_heads * self.kda_head_dim

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def shared_width(self) -> int:
        return self.moe_intermediate_size * self.num_shared_experts

    def is_mla(self, layer: int) -> bool:
        """`layer` counts from zero; `full_attn_layers` from one."""
        return layer + 1 in self.full_attn_layers

    def is_dense(self, layer: int) -> bool:
        return layer < self.first_k_dense_replace


def config_from_json(document: dict[str, Any]) -> K3Config:
    """Accepts the nested (released) and the flat shape; a missing key is a KeyError."""
    text = document.get("text_config", document)
    linear = text.get("linear_attn_config")
    values: dict[str, Any] = {}
    for field in dataclasses.fields(K3Config):
        if linear is None:
            values[field.name] = text[field.name]
        elif field.name in _LINEAR_ATTN_KEYS:
            values[field.name] = linear[_LINEAR_ATTN_KEYS[field.name]]
        else:
            values[field.name] = text[_NESTED_RENAMED.get(field.name, field.name)]
    values["full_attn_layers"] = tuple(values["full_attn_layers"])
    return K3Config(**values)


def read_config(directory: Path) -> K3Config:
    return config_from_json(json.loads((directory / "config.json").read_text()))


def flat_document(config: K3Config) -> dict[str, Any]:
    return {
        "model_type": "kimi_linear",
        **dataclasses.asdict(config),
        "full_attn_layers": list(config.full_attn_layers),
        "hidden_act": "situ",
        "tie_word_embeddings": False,
    }


def nested_document(config: K3Config, group_in_config_groups: bool) -> dict[str, Any]:
    """The released shape; the MXFP4 group size at either of the two places it is found."""
    text: dict[str, Any] = {
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "dtype": "bfloat16",
        "hidden_act": "situ",
        "mla_use_nope": True,
        "moe_layer_freq": 1,
        "moe_router_activation_func": "sigmoid",
        "num_expert_group": 1,
        "topk_group": 1,
        "num_key_value_heads": config.num_attention_heads,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }
    linear: dict[str, Any] = {"use_full_rank_gate": True}
    for name, value in dataclasses.asdict(config).items():
        if name in _LINEAR_ATTN_KEYS:
            linear[_LINEAR_ATTN_KEYS[name]] = value
        else:
            text[_NESTED_RENAMED.get(name, name)] = value
    layers = range(1, config.num_hidden_layers + 1)
    linear["kda_layers"] = [n for n in layers if n not in config.full_attn_layers]
    linear["full_attn_layers"] = list(config.full_attn_layers)
    text["linear_attn_config"] = linear
    quantization: dict[str, Any] = {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
    }
    if group_in_config_groups:
        weights = {"num_bits": 4, "type": "float", "group_size": 32}
        quantization["config_groups"] = {"group_0": {"targets": ["Linear"], "weights": weights}}
    else:
        quantization["group_size"] = 32
    text["quantization_config"] = quantization
    return {
        "architectures": ["KimiK3ForConditionalGeneration"],
        "model_type": "kimi_k3",
        "dtype": "bfloat16",
        "text_config": text,
        "vision_config": {"hidden_size": 16, "num_hidden_layers": 1},
    }
