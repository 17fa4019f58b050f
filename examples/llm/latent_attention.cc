// Attention of which all heads' keys and values are made of one vector a position (DeepSeek's
// multi-head latent attention): that vector is what is kept.
#include "examples/llm/transformer.h"

namespace tessera::llm {

// Keys and values are never made. A head's product of query and key, q (K c) for what is kept c,
// is (q K) c, and a sum of its values V c is V by the same sum of what is kept: so there is one key
// for all heads, of which the values are a part.
Tensor Transformer::LatentAttention(size_t layer, const Tensor& x, Parts parts) const {
  constexpr double kEps = 1e-6;  // whatever the other norms have
  const ModelConfig& c = model_.config;
  const LayerWeights& w = model_.layers[layer];
  const int64_t tokens = x.size(0), turned = c.turned(), own_width = c.head_dim - turned;
  const int64_t width = c.latent + turned;
  const Rows input = RowsFor(x, {w.q_down ? w.q_down : w.q, w.kv_down});
  Tensor q = w.q_down ? Project(Project(input, w.q_down).RmsNorm(w.q_norm, kEps), w.q)
                      : Project(input, w.q);
  q = q.Reshape({tokens, c.heads, c.head_dim});
  if (sharpness_) q = q * AtPositions(sharpness_, parts);
  const Tensor q_key = Rotate(layer, q.SliceAxis(-1, {own_width, c.head_dim}), parts);
  const Tensor q_shared =
      Project(q.SliceAxis(-1, {0, own_width}).Permute({1, 0, 2}), w.k_up).Permute({1, 0, 2});

  const Tensor down = Project(input, w.kv_down);
  const Tensor shared = down.SliceAxis(-1, {0, c.latent}).RmsNorm(w.k_norm, kEps);
  const Tensor key = Rotate(layer, down.SliceAxis(-1, {c.latent, width}).Unsqueeze(1), parts);
  const Tensor mixed = ForEachPart(parts, [&](const Part& part, const auto& own) {
    const int64_t rows_count = part.tokens;
    const Extent end = part.position + rows_count;
    Tensor kept = part.caches[layer].keys;
    kept.SliceAxis(1, {part.position, end})
        .Assign(Cat({own(shared), own(key).Squeeze(1)}, -1).Unsqueeze(0).Cast(kept.dtype()));
    const Tensor keys = kept.Shrink({{0, 1}, {0, end}, {0, width}}).Cast(kFloat32);
    const Tensor values = kept.Shrink({{0, 1}, {0, end}, {0, c.latent}}).Cast(kFloat32);

    // Heads are rows of one product.
    const Tensor queries =
        Cat({own(q_shared).Permute({1, 0, 2}), own(q_key).Permute({1, 0, 2})}, -1);
    const Tensor rows =
        RoundedBeside(queries, kept.dtype()).Reshape({1, c.heads * rows_count, width});
    const Tensor scores =
        Seen(rows.MatMul(keys.Transpose()) * ScoreScale(), /*window=*/0, rows_count, part.position);
    return scores.Softmax()
        .MatMul(values)
        .Reshape({c.heads, rows_count, c.latent})
        .Permute({1, 0, 2});
  });
  return Project(Project(mixed.Permute({1, 0, 2}), w.v_up)
                     .Permute({1, 0, 2})
                     .Reshape({tokens, c.heads * c.value_dim}),
                 w.o);
}

}  // namespace tessera::llm
