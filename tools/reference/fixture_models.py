"""The small models of tests/fixtures/models: dimensions, storage, prompts."""

from __future__ import annotations

import dataclasses

from checkpoint import CheckpointSpec, Layout, Stream
from k3_config import K3Config


@dataclasses.dataclass(frozen=True)
class Prompt:
    """Random ids. `variant` is chosen so that margins and router gaps are comfortable."""

    length: int
    variant: int
    gen: int = 20

    @property
    def name(self) -> str:
        return f"p{self.length}"

    def ids(self, vocab_size: int) -> list[int]:
        draws = Stream(self.variant, f"prompt of {self.length}").uniform((self.length,))
        return [int(u * vocab_size) for u in draws]


@dataclasses.dataclass(frozen=True)
class FixtureModel:
    name: str
    checkpoint: CheckpointSpec
    prompts: tuple[Prompt, ...]
    short: str  # the prompt of residuals, mutants and truncated models
    partial_layers: tuple[int, ...]
    packed_trunk: bool = False

    def ids(self, prompt: str) -> list[int]:
        chosen = next(p for p in self.prompts if p.name == prompt)
        return chosen.ids(self.checkpoint.config.vocab_size)


_DEMO = K3Config(
    hidden_size=128,
    num_hidden_layers=13,
    vocab_size=512,
    rms_norm_eps=1e-5,
    kda_num_heads=4,
    kda_head_dim=16,
    short_conv_kernel_size=4,
    gate_lower_bound=-5.0,
    full_attn_layers=(4, 8, 12, 13),
    num_attention_heads=3,
    q_lora_rank=48,
    kv_lora_rank=40,
    qk_nope_head_dim=20,
    qk_rope_head_dim=12,
    v_head_dim=24,
    mla_use_output_gate=True,
    num_experts=16,
    num_experts_per_token=4,
    num_shared_experts=2,
    routed_expert_hidden_size=64,
    moe_intermediate_size=32,
    routed_scaling_factor=1.0,
    moe_renormalize=True,
    latent_moe_use_norm=True,
    first_k_dense_replace=1,
    intermediate_size=160,
    attn_res_block_size=3,
    situ_beta=4.0,
    situ_linear_beta=25.0,
)

_DEEP = dataclasses.replace(
    _DEMO,
    hidden_size=64,
    num_hidden_layers=26,
    vocab_size=128,
    kda_num_heads=2,
    full_attn_layers=(4, 8, 12, 16, 20, 24, 25, 26),
    num_attention_heads=2,
    q_lora_rank=24,
    kv_lora_rank=32,
    qk_nope_head_dim=16,
    qk_rope_head_dim=8,
    v_head_dim=16,
    num_experts=5,
    num_experts_per_token=3,
    num_shared_experts=1,
    routed_expert_hidden_size=32,
    moe_intermediate_size=32,
    routed_scaling_factor=1.5,
    intermediate_size=96,
    attn_res_block_size=12,
)

_ODD = K3Config(
    hidden_size=152,
    num_hidden_layers=5,
    vocab_size=331,
    rms_norm_eps=1e-6,
    kda_num_heads=3,
    kda_head_dim=24,
    short_conv_kernel_size=3,
    gate_lower_bound=-3.5,
    full_attn_layers=(3, 5),
    num_attention_heads=5,
    q_lora_rank=44,
    kv_lora_rank=36,
    qk_nope_head_dim=20,
    qk_rope_head_dim=6,
    v_head_dim=28,
    mla_use_output_gate=False,
    num_experts=7,
    num_experts_per_token=1,
    num_shared_experts=3,
    routed_expert_hidden_size=96,
    moe_intermediate_size=32,
    routed_scaling_factor=2.5,
    moe_renormalize=False,
    latent_moe_use_norm=False,
    first_k_dense_replace=2,
    intermediate_size=616,
    attn_res_block_size=1,
    situ_beta=3.0,
    situ_linear_beta=20.0,
)

_NODENSE = K3Config(
    hidden_size=80,
    num_hidden_layers=4,
    vocab_size=101,
    rms_norm_eps=1e-5,
    kda_num_heads=2,
    kda_head_dim=40,
    short_conv_kernel_size=2,
    gate_lower_bound=-5.0,
    full_attn_layers=(1,),
    num_attention_heads=3,
    q_lora_rank=32,
    kv_lora_rank=24,
    qk_nope_head_dim=16,
    qk_rope_head_dim=16,
    v_head_dim=12,
    mla_use_output_gate=True,
    num_experts=5,
    num_experts_per_token=2,
    num_shared_experts=1,
    routed_expert_hidden_size=32,
    moe_intermediate_size=64,
    routed_scaling_factor=0.5,
    moe_renormalize=True,
    latent_moe_use_norm=False,
    first_k_dense_replace=0,
    intermediate_size=64,
    attn_res_block_size=2,
    situ_beta=4.0,
    situ_linear_beta=25.0,
)

# L = E, so that reading the wrong one of the two is possible; one expert with renormalisation on;
# a large eps; gates and ups far beyond the caps of SiTU.
_EDGE = K3Config(
    hidden_size=64,
    num_hidden_layers=3,
    vocab_size=128,
    rms_norm_eps=2e-3,
    kda_num_heads=2,
    kda_head_dim=16,
    short_conv_kernel_size=4,
    gate_lower_bound=-5.0,
    full_attn_layers=(2,),
    num_attention_heads=2,
    q_lora_rank=24,
    kv_lora_rank=20,
    qk_nope_head_dim=12,
    qk_rope_head_dim=8,
    v_head_dim=16,
    mla_use_output_gate=True,
    num_experts=6,
    num_experts_per_token=1,
    num_shared_experts=1,
    routed_expert_hidden_size=64,
    moe_intermediate_size=64,
    routed_scaling_factor=0.75,
    moe_renormalize=True,
    latent_moe_use_norm=False,
    first_k_dense_replace=1,
    intermediate_size=96,
    attn_res_block_size=2,
    situ_beta=4.0,
    situ_linear_beta=25.0,
)

_ODD_DTYPES = {
    # matrices and vectors of one layer in different types, against the habit of the release
    "*.layers.0.self_attn.q_proj.weight": "F32",
    "*.layers.0.self_attn.f_b_proj.weight": "F32",
    "*.layers.1.self_attn.o_proj.weight": "F32",
    "*.layers.2.self_attn.kv_b_proj.weight": "F32",
    "*.layers.2.self_attn.q_a_layernorm.weight": "F16",
    "*.layers.2.self_attn.kv_a_layernorm.weight": "F32",
    "*.layers.3.block_sparse_moe.gate.weight": "F32",
    "*.layers.3.block_sparse_moe.routed_expert_down_proj.weight": "F32",
    "*.layers.4.block_sparse_moe.shared_experts.down_proj.weight": "F32",
    "*.layers.0.self_attn.?_conv1d.weight": "BF16",
    "*.layers.1.self_attn.?_conv1d.weight": "F16",
    "*.layers.1.self_attn.dt_bias": "BF16",
    "*.layers.3.self_attn.dt_bias": "F16",
    "*.layers.3.self_attn.A_log": "F16",
    "*.layers.3.self_attn.o_norm.weight": "BF16",
    "*.layers.1.self_attn.o_norm.weight": "F16",
    "*.layers.?.input_layernorm.weight": "F32",
    "*.layers.?.post_attention_layernorm.weight": "F16",
    "*.layers.?.mlp_res_norm.weight": "F32",
    "*.layers.?.mlp_res_proj.weight": "F16",
    "*.layers.3.block_sparse_moe.gate.e_score_correction_bias": "BF16",
    "*.layers.4.block_sparse_moe.gate.e_score_correction_bias": "F16",
    "*model.norm.weight": "F16",
    "*lm_head.weight": "F32",
}

MODELS: dict[str, FixtureModel] = {
    "demo": FixtureModel(
        name="demo",
        checkpoint=CheckpointSpec(
            _DEMO, seed=1, layout=Layout(a_log_length=16, a_log_padding="garbage")
        ),
        prompts=(Prompt(1, 6), Prompt(6, 1), Prompt(40, 3)),
        short="p6",
        partial_layers=(1, 2, 4, 6, 12),
    ),
    "deep": FixtureModel(
        name="deep",
        checkpoint=CheckpointSpec(
            _DEEP, seed=2, layout=Layout(a_log_length=16, a_log_padding="zero", shards=5)
        ),
        prompts=(Prompt(1, 0), Prompt(7, 3), Prompt(40, 1)),
        short="p7",
        partial_layers=(1, 12, 13, 25),
    ),
    "odd": FixtureModel(
        name="odd",
        checkpoint=CheckpointSpec(
            _ODD,
            seed=3,
            layout=Layout(
                flat_config=True,
                shards=1,
                index=False,
                vision=False,
                header_pad=1,
                dtypes=_ODD_DTYPES,
            ),
        ),
        prompts=(Prompt(1, 0), Prompt(6, 1)),
        short="p6",
        partial_layers=(1, 3, 4),
    ),
    "nodense": FixtureModel(
        name="nodense",
        checkpoint=CheckpointSpec(
            _NODENSE,
            seed=4,
            layout=Layout(
                group_in_config_groups=True,
                # decoys: the KDA fields come from linear_attn_config
                config_extra={"num_heads": 7, "head_dim": 24},
                shards=3,
                scatter_experts=True,
                scale_dtype="F8_E8M0",
                a_log_length=8,
                a_log_padding="nan",
            ),
        ),
        prompts=(Prompt(1, 0), Prompt(5, 0)),
        short="p5",
        partial_layers=(1, 2),
    ),
    "edge": FixtureModel(
        name="edge",
        checkpoint=CheckpointSpec(
            _EDGE,
            seed=5,
            layout=Layout(
                a_log_length=2,
                escaped_names=("*o_proj*", "*.experts.1.*"),
                header_skew=3,
            ),
            gains={
                "*.experts.*.w1": 3.0,
                "*.experts.*.w3": 12.0,
                "*.experts.*.w2": 0.1,
                "*.e_score_correction_bias": 2.0,
                "*.self_attn.v_proj.weight": 0.3,
                # small latents, so that the eps of their norms counts
                "*.self_attn.q_a_proj.weight": 0.2,
                "*.self_attn.kv_a_proj_with_mqa.weight": 0.2,
            },
            special_scales=0.08,
        ),
        prompts=(Prompt(1, 0), Prompt(6, 1)),
        short="p6",
        partial_layers=(1, 2),
        packed_trunk=True,
    ),
}
