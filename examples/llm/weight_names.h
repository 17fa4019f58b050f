// What each weight is called in files.
#pragma once

namespace tessera::llm {

// What a weight is called: in GGUF files, and in safetensors as Hugging Face's classes name it, of
// which some have other names.
struct Names {
  const char* gguf[3];
  const char* hugging_face[3];
};
#define LAYER "model.layers.N."
inline constexpr Names kEmbedding = {{"token_embd.weight"}, {"model.embed_tokens.weight"}};
inline constexpr Names kOutput = {{"output.weight"}, {"lm_head.weight"}};
inline constexpr Names kOutputBias = {{"output.bias"}, {"lm_head.bias"}};
inline constexpr Names kNorm = {{"output_norm.weight", "token_embd_norm.weight"},
                                {"model.norm.weight", "model.embedding_norm.weight"}};
inline constexpr Names kNormBias = {{"output_norm.bias"}, {"model.norm.bias"}};
inline constexpr Names kRopeDivisors = {{"rope_freqs.weight"}, {"rope_freqs.weight"}};
inline constexpr Names kShortDivisors = {{"rope_factors_short.weight"}, {}};
inline constexpr Names kLongDivisors = {{"rope_factors_long.weight"}, {}};
inline constexpr Names kAttentionNorm = {
    {"blk.N.attn_norm.weight"}, {LAYER "input_layernorm.weight", LAYER "operator_norm.weight"}};
inline constexpr Names kFfnNorm = {
    {"blk.N.ffn_norm.weight", "blk.N.post_attention_norm.weight"},
    {LAYER "post_attention_layernorm.weight", LAYER "ffn_norm.weight"}};
// Where what is added is normed as well, one is called otherwise.
inline constexpr Names kFfnNormOfFour = {
    {"blk.N.ffn_norm.weight"},
    {LAYER "pre_feedforward_layernorm.weight", LAYER "post_attention_layernorm.weight"}};
inline constexpr Names kAttentionPostNorm = {
    {"blk.N.post_attention_norm.weight"},
    {LAYER "post_self_attn_layernorm.weight", LAYER "post_attention_layernorm.weight"}};
inline constexpr Names kFfnPostNorm = {
    {"blk.N.post_ffw_norm.weight"},
    {LAYER "post_feedforward_layernorm.weight", LAYER "post_mlp_layernorm.weight"}};
inline constexpr Names kAttentionNormBias = {{"blk.N.attn_norm.bias"},
                                             {LAYER "input_layernorm.bias"}};
inline constexpr Names kFfnNormBias = {{"blk.N.ffn_norm.bias"},
                                       {LAYER "post_attention_layernorm.bias"}};
inline constexpr Names kQ = {{"blk.N.attn_q.weight"}, {LAYER "self_attn.q_proj.weight"}};
inline constexpr Names kK = {{"blk.N.attn_k.weight"}, {LAYER "self_attn.k_proj.weight"}};
inline constexpr Names kV = {{"blk.N.attn_v.weight"}, {LAYER "self_attn.v_proj.weight"}};
inline constexpr Names kQkv = {{"blk.N.attn_qkv.weight"}, {LAYER "self_attn.qkv_proj.weight"}};
inline constexpr Names kO = {{"blk.N.attn_output.weight"},
                             {LAYER "self_attn.o_proj.weight", LAYER "self_attn.out_proj.weight"}};
inline constexpr Names kQBias = {{"blk.N.attn_q.bias"}, {LAYER "self_attn.q_proj.bias"}};
inline constexpr Names kKBias = {{"blk.N.attn_k.bias"}, {LAYER "self_attn.k_proj.bias"}};
inline constexpr Names kVBias = {{"blk.N.attn_v.bias"}, {LAYER "self_attn.v_proj.bias"}};
inline constexpr Names kOBias = {{"blk.N.attn_output.bias"}, {LAYER "self_attn.o_proj.bias"}};
inline constexpr Names kQNorm = {
    {"blk.N.attn_q_norm.weight"},
    {LAYER "self_attn.q_norm.weight", LAYER "self_attn.query_layernorm.weight",
     LAYER "self_attn.q_layernorm.weight"}};
inline constexpr Names kKNorm = {
    {"blk.N.attn_k_norm.weight"},
    {LAYER "self_attn.k_norm.weight", LAYER "self_attn.key_layernorm.weight",
     LAYER "self_attn.k_layernorm.weight"}};
// Of convolutions: three matrices in one, the weights of the last positions, and the matrix after.
inline constexpr Names kConvIn = {{"blk.N.shortconv.in_proj.weight"},
                                  {LAYER "conv.in_proj.weight"}};
inline constexpr Names kConvTaps = {{"blk.N.shortconv.conv.weight"}, {LAYER "conv.conv.weight"}};
inline constexpr Names kConvOut = {{"blk.N.shortconv.out_proj.weight"},
                                   {LAYER "conv.out_proj.weight"}};
// Of memories: queries, keys and values in one matrix; gates of results; how much is written and
// how much is kept, in two matrices or one; and what these begin from.
#define MEMORY LAYER "linear_attn."
inline constexpr Names kMemoryQkv = {{"blk.N.attn_qkv.weight"}, {MEMORY "in_proj_qkv.weight"}};
inline constexpr Names kMemoryGate = {{"blk.N.attn_gate.weight"}, {MEMORY "in_proj_z.weight"}};
inline constexpr Names kMemoryQkvGate = {{"blk.N.ssm_in.weight"}, {MEMORY "in_proj_qkvz.weight"}};
inline constexpr Names kMemoryWrite = {{"blk.N.ssm_beta.weight"}, {MEMORY "in_proj_b.weight"}};
inline constexpr Names kMemoryKeep = {{"blk.N.ssm_alpha.weight"}, {MEMORY "in_proj_a.weight"}};
inline constexpr Names kMemoryWriteKeep = {{"blk.N.ssm_ba.weight"}, {MEMORY "in_proj_ba.weight"}};
inline constexpr Names kMemoryTaps = {{"blk.N.ssm_conv1d.weight"}, {MEMORY "conv1d.weight"}};
inline constexpr Names kMemoryKeepBias = {{"blk.N.ssm_dt.bias"}, {MEMORY "dt_bias"}};
inline constexpr Names kMemoryRate = {{"blk.N.ssm_a"}, {MEMORY "A_log"}};
inline constexpr Names kMemoryNorm = {{"blk.N.ssm_norm.weight"}, {MEMORY "norm.weight"}};
inline constexpr Names kMemoryOut = {{"blk.N.ssm_out.weight"}, {MEMORY "out_proj.weight"}};
#undef MEMORY
// Of latent attention: what queries, and keys and values, are made of, and what makes them of it.
// Keys and values are made by one matrix, or by two, of which that of the keys is transposed.
inline constexpr Names kQDown = {{"blk.N.attn_q_a.weight"}, {LAYER "self_attn.q_a_proj.weight"}};
inline constexpr Names kQDownNorm = {{"blk.N.attn_q_a_norm.weight"},
                                     {LAYER "self_attn.q_a_layernorm.weight"}};
inline constexpr Names kQUp = {{"blk.N.attn_q_b.weight"}, {LAYER "self_attn.q_b_proj.weight"}};
inline constexpr Names kKvDown = {{"blk.N.attn_kv_a_mqa.weight"},
                                  {LAYER "self_attn.kv_a_proj_with_mqa.weight"}};
inline constexpr Names kKvDownNorm = {{"blk.N.attn_kv_a_norm.weight"},
                                      {LAYER "self_attn.kv_a_layernorm.weight"}};
inline constexpr Names kKvUp = {{"blk.N.attn_kv_b.weight"}, {LAYER "self_attn.kv_b_proj.weight"}};
inline constexpr Names kKUp = {{"blk.N.attn_k_b.weight"}, {}};
inline constexpr Names kVUp = {{"blk.N.attn_v_b.weight"}, {}};
inline constexpr Names kGate = {{"blk.N.ffn_gate.weight"},
                                {LAYER "mlp.gate_proj.weight", LAYER "feed_forward.w1.weight"}};
inline constexpr Names kUp = {
    {"blk.N.ffn_up.weight"},
    {LAYER "mlp.up_proj.weight", LAYER "mlp.c_fc.weight", LAYER "feed_forward.w3.weight"}};
// Files of which the gate is part of another matrix have both under this name.
inline constexpr Names kGateUp = {{"blk.N.ffn_up.weight"}, {LAYER "mlp.gate_up_proj.weight"}};
inline constexpr Names kDown = {
    {"blk.N.ffn_down.weight"},
    {LAYER "mlp.down_proj.weight", LAYER "mlp.c_proj.weight", LAYER "feed_forward.w2.weight"}};
inline constexpr Names kGateBias = {{"blk.N.ffn_gate.bias"}, {LAYER "mlp.gate_proj.bias"}};
inline constexpr Names kUpBias = {{"blk.N.ffn_up.bias"},
                                  {LAYER "mlp.up_proj.bias", LAYER "mlp.c_fc.bias"}};
inline constexpr Names kDownBias = {{"blk.N.ffn_down.bias"},
                                    {LAYER "mlp.down_proj.bias", LAYER "mlp.c_proj.bias"}};
// Experts are in one tensor, or, with an E, each in its own.
inline constexpr Names kRouter = {{"blk.N.ffn_gate_inp.weight"},
                                  {LAYER "mlp.gate.weight", LAYER "block_sparse_moe.gate.weight",
                                   LAYER "feed_forward.gate.weight"}};
inline constexpr Names kExpertGate = {
    {"blk.N.ffn_gate_exps.weight", "blk.N.ffn_gate.E.weight"},
    {LAYER "mlp.experts.E.gate_proj.weight", LAYER "block_sparse_moe.experts.E.w1.weight",
     LAYER "feed_forward.experts.E.w1.weight"}};
inline constexpr Names kExpertUp = {
    {"blk.N.ffn_up_exps.weight", "blk.N.ffn_up.E.weight"},
    {LAYER "mlp.experts.E.up_proj.weight", LAYER "block_sparse_moe.experts.E.w3.weight",
     LAYER "feed_forward.experts.E.w3.weight"}};
inline constexpr Names kExpertDown = {
    {"blk.N.ffn_down_exps.weight", "blk.N.ffn_down.E.weight"},
    {LAYER "mlp.experts.E.down_proj.weight", LAYER "block_sparse_moe.experts.E.w2.weight",
     LAYER "feed_forward.experts.E.w2.weight"}};
inline constexpr Names kRouterBias = {{"blk.N.ffn_gate_inp.bias"}, {LAYER "mlp.router.bias"}};
inline constexpr Names kChoiceBias = {
    {"blk.N.exp_probs_b.bias"},
    {LAYER "mlp.gate.e_score_correction_bias", LAYER "block_sparse_moe.e_score_correction_bias",
     LAYER "feed_forward.expert_bias"}};
inline constexpr Names kChoiceBiasOfStatics = {{},
                                               {LAYER "mlp.moe_statics.e_score_correction_bias"}};
inline constexpr Names kExpertGateBias = {{"blk.N.ffn_gate_exps.bias"}, {}};
inline constexpr Names kExpertUpBias = {{"blk.N.ffn_up_exps.bias"}, {}};
inline constexpr Names kExpertDownBias = {{"blk.N.ffn_down_exps.bias"},
                                          {LAYER "mlp.experts.down_proj_bias"}};
inline constexpr Names kSinks = {{"blk.N.attn_sinks.weight"}, {LAYER "self_attn.sinks"}};
// Granite has gates and ups in one tensor, gpt-oss as well, whose matrices are transposed and of
// which the gates and ups take turns.
inline constexpr Names kRouterOfJoined = {{}, {LAYER "block_sparse_moe.router.layer.weight"}};
inline constexpr Names kExpertGateUp = {{}, {LAYER "block_sparse_moe.input_linear.weight"}};
inline constexpr Names kRouterOfTurned = {{}, {LAYER "mlp.router.weight"}};
inline constexpr Names kExpertGateUpTurned = {{}, {LAYER "mlp.experts.gate_up_proj"}};
inline constexpr Names kExpertGateUpNibbles = {{}, {LAYER "mlp.experts.gate_up_proj_blocks"}};
inline constexpr Names kExpertGateUpExponents = {{}, {LAYER "mlp.experts.gate_up_proj_scales"}};
inline constexpr Names kExpertGateUpBias = {{}, {LAYER "mlp.experts.gate_up_proj_bias"}};
inline constexpr Names kExpertDownTurned = {{}, {LAYER "mlp.experts.down_proj"}};
inline constexpr Names kExpertDownNibbles = {{}, {LAYER "mlp.experts.down_proj_blocks"}};
inline constexpr Names kExpertDownExponents = {{}, {LAYER "mlp.experts.down_proj_scales"}};
inline constexpr Names kExpertDownOfJoined = {{}, {LAYER "block_sparse_moe.output_linear.weight"}};
inline constexpr Names kSharedGate = {
    {"blk.N.ffn_gate_shexp.weight"},
    {LAYER "mlp.shared_expert.gate_proj.weight", LAYER "mlp.shared_experts.gate_proj.weight"}};
inline constexpr Names kSharedUp = {
    {"blk.N.ffn_up_shexp.weight"},
    {LAYER "mlp.shared_expert.up_proj.weight", LAYER "mlp.shared_experts.up_proj.weight"}};
inline constexpr Names kSharedDown = {
    {"blk.N.ffn_down_shexp.weight"},
    {LAYER "mlp.shared_expert.down_proj.weight", LAYER "mlp.shared_experts.down_proj.weight"}};
inline constexpr Names kSharedGateBias = {{"blk.N.ffn_gate_shexp.bias"},
                                          {LAYER "mlp.shared_experts.gate_proj.bias"}};
inline constexpr Names kSharedUpBias = {{"blk.N.ffn_up_shexp.bias"},
                                        {LAYER "mlp.shared_experts.up_proj.bias"}};
inline constexpr Names kSharedDownBias = {{"blk.N.ffn_down_shexp.bias"},
                                          {LAYER "mlp.shared_experts.down_proj.bias"}};
inline constexpr Names kSharedShare = {{"blk.N.ffn_gate_inp_shexp.weight"},
                                       {LAYER "mlp.shared_expert_gate.weight"}};
// Of streams of hidden states: what makes them of the embedding, and one of them again; what layers
// have of tokens; and of a layer the way past it and how streams go through it.
inline constexpr Names kStreamsIn = {{"altup_proj.weight"}, {"model.altup_projections.E.weight"}};
inline constexpr Names kStreamsOut = {{"altup_unembd_proj.weight"},
                                      {"model.altup_unembed_projections.E.weight"}};
inline constexpr Names kLayerEmbedding = {{"per_layer_token_embd.weight"},
                                          {"model.embed_tokens_per_layer.weight"}};
inline constexpr Names kLayerProjection = {{"per_layer_model_proj.weight"},
                                           {"model.per_layer_model_projection.weight"}};
inline constexpr Names kLayerProjectionNorm = {{"per_layer_proj_norm.weight"},
                                               {"model.per_layer_projection_norm.weight"}};
inline constexpr Names kDetourIn = {{"blk.N.laurel_l.weight"}, {LAYER "laurel.linear_left.weight"}};
inline constexpr Names kDetourOut = {{"blk.N.laurel_r.weight"},
                                     {LAYER "laurel.linear_right.weight"}};
inline constexpr Names kDetourNorm = {{"blk.N.laurel_post_norm.weight"},
                                      {LAYER "laurel.post_laurel_norm.weight"}};
inline constexpr Names kStreamRouter = {{"blk.N.altup_router.weight"},
                                        {LAYER "altup.modality_router.weight"}};
inline constexpr Names kStreamRouterNorm = {{"blk.N.altup_router_norm.weight"},
                                            {LAYER "altup.router_norm.weight"}};
inline constexpr Names kStreamPredict = {{"blk.N.altup_predict_coef.weight"},
                                         {LAYER "altup.prediction_coefs.weight"}};
inline constexpr Names kStreamCorrect = {{"blk.N.altup_correct_coef.weight"},
                                         {LAYER "altup.correction_coefs.weight"}};
inline constexpr Names kStreamScale = {{"blk.N.altup_correct_scale.weight"},
                                       {LAYER "altup.correct_output_scale"}};
inline constexpr Names kLayerGate = {{"blk.N.inp_gate.weight"},
                                     {LAYER "per_layer_input_gate.weight"}};
inline constexpr Names kLayerUp = {{"blk.N.proj.weight"}, {LAYER "per_layer_projection.weight"}};
inline constexpr Names kLayerNorm = {{"blk.N.post_norm.weight"},
                                     {LAYER "post_per_layer_input_norm.weight"}};
#undef LAYER

}  // namespace tessera::llm
