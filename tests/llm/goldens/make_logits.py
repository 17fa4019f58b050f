#!/usr/bin/env python3
"""Writes logits.json: small models of each architecture as Hugging Face's transformers computes them.

    pip install torch transformers safetensors gguf
    make_logits.py > logits.json
    make_logits.py NAME...                 # only these

A weight is made from its name and shape alone (see Values), so that a test can make the same one; the
file holds the configurations, the names of the checkpoints' tensors, here and in GGUF files, their
shapes, and logits.
"""
import contextlib
import json
import re
import sys
import tempfile

import gguf
import safetensors
import safetensors.torch
import torch
import transformers

SMALL = dict(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5,
             attn_implementation="eager", initializer_range=0.02, pad_token_id=0, bos_token_id=1,
             eos_token_id=2)
TOKENS = [(i * 17 + 3) % 50 for i in range(24)]
KEPT = [0, 15, 23]  # positions whose logits are kept


def Models():
    t = transformers
    yield "llama", t.LlamaConfig(intermediate_size=40, rope_theta=5000.0, attention_bias=True,
                                 mlp_bias=True, **SMALL)
    yield "mistral", t.MistralConfig(intermediate_size=40, sliding_window=7, head_dim=8, **SMALL)
    yield "qwen2", t.Qwen2Config(intermediate_size=40, tie_word_embeddings=True, **SMALL)
    yield "qwen3", t.Qwen3Config(intermediate_size=40, head_dim=8, **SMALL)
    yield "mixtral", t.MixtralConfig(intermediate_size=40, num_local_experts=6, **SMALL)
    yield "qwen2_moe", t.Qwen2MoeConfig(
        intermediate_size=40, moe_intermediate_size=20, shared_expert_intermediate_size=28,
        num_experts=7, num_experts_per_tok=3, **SMALL)
    yield "qwen3_moe", t.Qwen3MoeConfig(
        intermediate_size=40, moe_intermediate_size=20, head_dim=8, num_experts=7,
        num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[1], **SMALL)
    yield "olmoe", t.OlmoeConfig(intermediate_size=20, num_experts=8, num_experts_per_tok=2, **SMALL)
    yield "gemma", t.GemmaConfig(intermediate_size=40, head_dim=8, **SMALL)
    yield "gemma2", t.Gemma2Config(intermediate_size=40, head_dim=8, sliding_window=7,
                                   query_pre_attn_scalar=12, attn_logit_softcapping=5.0,
                                   final_logit_softcapping=4.0, **SMALL)
    yield "gemma3", t.Gemma3TextConfig(
        intermediate_size=40, head_dim=8, sliding_window=7, query_pre_attn_scalar=12,
        layer_types=["sliding_attention", "full_attention"] ,
        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                         "full_attention": {"rope_type": "linear", "factor": 8.0,
                                            "rope_theta": 10000.0}}, **SMALL)
    kinds = ["sliding_attention", "full_attention"]
    yield "gemma3n", t.Gemma3nTextConfig(
        intermediate_size=40, head_dim=8, sliding_window=7, layer_types=2 * kinds,
        final_logit_softcapping=5.0, vocab_size_per_layer_input=40, hidden_size_per_layer_input=8,
        altup_num_inputs=3, altup_active_idx=1, num_kv_shared_layers=2, laurel_rank=5,
        activation_sparsity_pattern=[0.9, 0.0, 0.5, 0.7], rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        **{**SMALL, "num_hidden_layers": 4})
    yield "phi3", t.Phi3Config(intermediate_size=40, partial_rotary_factor=0.5, sliding_window=9,
                               **{**SMALL, "hidden_size": 48})
    yield "phi3_long", t.Phi3Config(
        intermediate_size=40, original_max_position_embeddings=64, rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5],
            "long_factor": [2.0, 8.0]}, **{**SMALL, "max_position_embeddings": 256})
    yield "granite", t.GraniteConfig(
        intermediate_size=40, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.4,
        attention_multiplier=0.3, **SMALL)
    yield "granitemoe", t.GraniteMoeConfig(
        intermediate_size=20, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.4,
        attention_multiplier=0.3, num_local_experts=6, num_experts_per_tok=3, **SMALL)
    yield "olmo2", t.Olmo2Config(intermediate_size=40, **SMALL)
    yield "olmo3", t.Olmo3Config(
        intermediate_size=40, sliding_window=7,
        layer_types=["sliding_attention", "full_attention"], rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 4.0,
                               "beta_slow": 1.0, "original_max_position_embeddings": 32,
                               "rope_theta": 10000.0}}, **SMALL)
    yield "smollm3", t.SmolLM3Config(intermediate_size=40, **{**SMALL, "num_hidden_layers": 4})
    yield "gpt_oss", t.GptOssConfig(
        intermediate_size=20, head_dim=8, num_local_experts=6, num_experts_per_tok=2,
        sliding_window=7, rope_parameters={
            "rope_type": "yarn", "factor": 8.0, "beta_fast": 4.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 32, "rope_theta": 10000.0},
        **SMALL)
    yield "ministral3", t.Ministral3Config(
        intermediate_size=40, head_dim=8, rope_parameters={
            "rope_type": "yarn", "factor": 8.0, "beta_fast": 4.0, "beta_slow": 1.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 8, "rope_theta": 10000.0,
            "llama_4_scaling_beta": 0.3}, **SMALL)
    yield "glm4", t.Glm4Config(intermediate_size=40, head_dim=8, partial_rotary_factor=0.5,
                               attention_bias=True, **SMALL)
    yield "exaone4", t.Exaone4Config(
        intermediate_size=40, sliding_window=7, layer_types=["sliding_attention", "full_attention"],
        **SMALL)
    yield "exaone4_whole", t.Exaone4Config(intermediate_size=40, sliding_window=None, layer_types=[
        "full_attention", "full_attention"], **SMALL)
    yield "seed_oss", t.SeedOssConfig(intermediate_size=40, head_dim=8, attention_bias=True,
                                      attention_out_bias=False, **SMALL)
    yield "ernie4_5", t.Ernie4_5Config(intermediate_size=40, head_dim=8, use_bias=False, **SMALL)
    yield "hunyuan_v1_dense", t.HunYuanDenseV1Config(
        intermediate_size=40, head_dim=8, rope_parameters={
            "rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0}, **SMALL)
    yield "arcee", t.ArceeConfig(intermediate_size=40, mlp_bias=True, **SMALL)
    centred = {k: v for k, v in SMALL.items() if k != "rms_norm_eps"}
    yield "starcoder2", t.Starcoder2Config(intermediate_size=40, sliding_window=7, use_bias=True,
                                           norm_epsilon=1e-5, **centred)
    yield "cohere", t.CohereConfig(intermediate_size=40, logit_scale=0.3, **centred)
    yield "cohere_normed", t.CohereConfig(intermediate_size=40, logit_scale=0.3, use_qk_norm=True,
                                          **centred)
    yield "cohere2", t.Cohere2Config(
        intermediate_size=40, logit_scale=0.3, sliding_window=7, layer_types=[
            "sliding_attention", "full_attention"], **centred)
    mixture = dict(intermediate_size=40, moe_intermediate_size=20, num_experts_per_tok=3,
                   n_routed_experts=8, routed_scaling_factor=1.7, first_k_dense_replace=1)
    latent = dict(kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5, **mixture)
    yarn = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 4.0, "beta_slow": 1.0, "mscale": 0.7,
            "mscale_all_dim": 0.7, "original_max_position_embeddings": 8, "rope_theta": 10000.0}
    apart = {**SMALL, "num_key_value_heads": 6}
    yield "deepseek_v2", t.DeepseekV2Config(q_lora_rank=None, n_shared_experts=2, n_group=4,
                                            topk_group=2, topk_method="group_limited_greedy",
                                            rope_parameters=yarn, **latent, **apart)
    yield "deepseek_v2_greedy", t.DeepseekV2Config(q_lora_rank=14, n_shared_experts=1, n_group=4,
                                                   topk_group=1, **latent, **apart)
    yield "deepseek_v3", t.DeepseekV3Config(q_lora_rank=14, n_shared_experts=1, n_group=4,
                                            topk_group=2, rope_parameters=yarn, **latent, **apart)
    lite = {k: v for k, v in latent.items() if k != "first_k_dense_replace"}
    yield "glm4_moe_lite", t.Glm4MoeLiteConfig(q_lora_rank=14, n_shared_experts=1, **lite, **apart)
    yield "glm4_moe", t.Glm4MoeConfig(
        n_shared_experts=1, head_dim=8, attention_bias=True, use_qk_norm=True, n_group=1,
        topk_group=1, **mixture, **SMALL)
    yield "dots1", t.Dots1Config(n_shared_experts=2, head_dim=8, norm_topk_prob=True,
                                 **mixture, **SMALL)
    yield "minimax_m2", t.MiniMaxM2Config(
        intermediate_size=20, head_dim=8, num_experts_per_tok=3, num_local_experts=8,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                         "partial_rotary_factor": 0.5}, **SMALL)
    yield "ernie4_5_moe", t.Ernie4_5_MoeConfig(
        intermediate_size=40, moe_intermediate_size=20, head_dim=8, moe_k=3, moe_num_experts=8,
        moe_num_shared_experts=2, moe_layer_start_index=1, tie_word_embeddings=False,
        **SMALL)
    yield "ernie4_5_moe_biased", t.Ernie4_5_MoeConfig(
        intermediate_size=40, moe_intermediate_size=20, head_dim=8, moe_k=3, moe_num_experts=8,
        moe_num_shared_experts=2, moe_layer_start_index=1, use_bias=True, **SMALL)
    short = {**SMALL, "num_hidden_layers": 3}
    kinds = ["conv", "full_attention", "conv"]
    yield "lfm2", t.Lfm2Config(intermediate_size=50, norm_eps=1e-5, block_multiple_of=8,
                               layer_types=kinds, **short)
    yield "lfm2_moe", t.Lfm2MoeConfig(
        intermediate_size=40, norm_eps=1e-5, moe_intermediate_size=20, num_experts=4,
        num_experts_per_tok=2, num_dense_layers=1, routed_scaling_factor=1.3, conv_L_cache=4,
        layer_types=kinds, **short)
    memory = dict(head_dim=8, linear_conv_kernel_dim=4, linear_key_head_dim=6, linear_value_head_dim=5,
                  linear_num_key_heads=2, linear_num_value_heads=6, layer_types=[
                      "linear_attention", "full_attention", "linear_attention"], **short)
    experts = dict(moe_intermediate_size=20, shared_expert_intermediate_size=12, num_experts=4,
                   num_experts_per_tok=2)
    yield "qwen3_next", t.Qwen3NextConfig(intermediate_size=40, **experts, **memory)
    yield "qwen3_5", t.Qwen3_5TextConfig(intermediate_size=40, **memory)
    yield "qwen3_5_moe", t.Qwen3_5MoeTextConfig(**experts, **memory)


def Values(name, shape):
    """Numbers of a linear generator that begins at the name's hash; norms are around 1."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    count = 1
    for extent in shape:
        count *= extent
    out = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append((state >> 40) / 2**23 - 1)
    values = torch.tensor(out, dtype=torch.float32).reshape(shape)
    return 1 + 0.3 * values if "norm" in name else 0.5 * values


def GgufName(name, architecture):
    """As gguf-py has it; experts are one tensor there."""
    kind = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    base, _, suffix = name.rpartition(".")
    merged = re.sub(r"experts\.\d+\.", "experts.", base)
    found = gguf.get_tensor_name_map(kind, 4).get_name(merged)
    return f"{found}.{suffix}" if found else None


def Golden(label, config):
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path = folder + "/model.safetensors"
        with safetensors.safe_open(path, "pt") as file:
            weights = {name: Values(name, file.get_slice(name).get_shape()) for name in file.keys()}
        safetensors.torch.save_file(weights, path, {"format": "pt"})
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager").eval()
        written = json.load(open(folder + "/config.json"))
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS])).logits[0]
    for key in ["transformers_version", "dtype", "architectures", "use_cache"]:
        written.pop(key, None)
    architecture = {"mixtral": "llama", "mistral": "llama", "gemma3_text": "gemma3", "gemma3n_text": "gemma3n",
                    "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss",
                    "olmo3": "olmo2", "ministral3": "mistral3", "cohere": "command-r",
                    "hunyuan_v1_dense": "hunyuan-dense", "deepseek_v2": "deepseek2",
                    "deepseek_v3": "deepseek2", "glm4_moe_lite": "deepseek2",
                    "glm4_moe": "glm4moe", "minimax_m2": "minimax-m2", "lfm2_moe": "lfm2moe", "qwen3_next": "qwen3next",
                    "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe", "ernie4_5_moe": "ernie4_5-moe"}.get(
                        config.model_type, config.model_type)
    return {"name": label, "config": written, "architecture": architecture,
            "tensors": {n: [GgufName(n, architecture), *w.shape] for n, w in weights.items()},
            "logits": {str(p): [float(f"{x:.6g}") for x in logits[p].tolist()] for p in KEPT}}


def Main():
    with contextlib.redirect_stdout(sys.stderr):
        wanted = sys.argv[1:]
        goldens = [Golden(label, config) for label, config in Models()
                   if not wanted or label in wanted]
    print("[" + ",\n".join(json.dumps(g) for g in goldens) + "]")


Main()
