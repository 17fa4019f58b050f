// Which axis of each weight is cut, and where.
#include "examples/llm/parallel.h"

#include <algorithm>
#include <numeric>

#include "graph/error.h"

namespace tessera::llm {
namespace {

// Moves one weight after the other, and tells how far it is.
class Progress {
 public:
  Progress(uint64_t bytes, const LoadProgress& show) : bytes_(bytes), show_(show) {}

  void Move(Tensor& t, const Device& to) {
    if (!t) return;
    Tensor moved = t.To(to);
    if (t.device() == to) {
      moved = Tensor::Empty(t.shape(), t.dtype(), to);
      moved.Assign(t);
    }
    t = moved.Realize();
    done_ += static_cast<uint64_t>(t.elements()) * static_cast<uint64_t>(t.dtype().bytes());
    if (show_ && !show_(std::min(done_, bytes_), bytes_)) {
      throw Error(absl::CancelledError("interrupted while the weights were moved"));
    }
  }

 private:
  const uint64_t bytes_;
  const LoadProgress& show_;
  uint64_t done_ = 0;
};

int64_t BlockOf(const Matrix& m) { return InfoOf(m.format).block_elements; }

// What streams of hidden states have beside layers: every place has all of it.
template <typename Move>
void MoveStreams(const Move& move, Model* m) {
  for (Matrix* matrix :
       {&m->streams_in, &m->streams_out, &m->layer_embedding, &m->layer_projection}) {
    move(matrix->stored);
    move(matrix->scale);
  }
  move(m->layer_projection_norm);
}

// Moves the weights of one model.
class Mover {
 public:
  Mover(Model* model, const std::vector<Place>& places, Progress& progress)
      : model_(*model), mesh_(PlaceList(places)), progress_(progress) {
    const ModelConfig& c = model_.config;
    int64_t block = 1;
    for (const LayerWeights& w : model_.layers) block = std::lcm(block, BlockOf(w.o));
    // Of latent attention every place keeps what keys and values are made of.
    heads_ = c.latent > 0 ? DivideHeads(c.heads, c.heads, c.value_dim, block, mesh_.size())
                          : DivideHeads(c.heads, c.kv_heads, c.head_dim, block, mesh_.size());
  }

  void Run() {
    const ModelConfig& c = model_.config;
    const Sharding whole(mesh_);
    model_.division.whole = whole;
    model_.division.logits = mesh_.places()[0];
    if (mesh_.places()[0].kind() == "CPU") model_.division.tokens = whole;
    model_.division.heads = Cut(0, heads_.layout);
    model_.division.kv_heads = c.kv_heads * heads_.repeats;
    const bool tied = model_.output.stored.Is(model_.embedding.stored);
    Move(model_.embedding.stored, Cut(0, Layout()));
    Move(model_.embedding.scale, whole);
    if (tied) {
      model_.output = model_.embedding;
    } else {
      Move(model_.output.stored, Cut(0, Layout()));
      Move(model_.output.scale, whole);
    }
    Move(model_.output_bias, Cut(0, Layout()));
    MoveStreams([&](Tensor& t) { Move(t, whole); }, &model_);
    Move(model_.norm, whole);
    Move(model_.norm_bias, whole);
    for (LayerWeights& w : model_.layers) MoveLayer(w);
  }

 private:
  void MoveLayer(LayerWeights& w) {
    const ModelConfig& c = model_.config;
    const Sharding whole(mesh_);
    for (Tensor* t :
         {&w.attention_norm, &w.ffn_norm, &w.attention_post_norm, &w.ffn_post_norm, &w.o_bias,
          &w.attention_norm_bias, &w.ffn_norm_bias, &w.down_bias, &w.router.stored, &w.router_bias,
          &w.choice_bias, &w.shared_share.stored, &w.shared_down_bias}) {
      Move(*t, whole);
    }
    for (Matrix* m : {&w.detour_in, &w.detour_out, &w.stream_router, &w.stream_predict,
                      &w.stream_correct, &w.layer_gate, &w.layer_up}) {
      Move(m->stored, whole);
    }
    for (Tensor* t : {&w.detour_norm, &w.stream_norm, &w.stream_scale, &w.layer_norm}) {
      Move(*t, whole);
    }
    for (const auto& [name, matrix] : kMatrices) Move((w.*matrix).scale, whole);
    if (w.memory_out) {
      MoveMemory(w);
    } else if (w.conv_out) {
      MoveColumns(0, w.conv_in, w.conv_gate, w.conv_out);
      Move(w.conv_out_gate.stored, Cut(0, Layout::Aligned(BlockOf(w.conv_out))));
      Move(w.conv_taps, Cut(1, Layout::Aligned(BlockOf(w.conv_out))));
    } else {
      c.latent > 0 ? MoveLatentAttention(w) : MoveAttention(w);
    }
    const int columns = w.router ? 1 : 0;
    MoveColumns(columns, w.gate, w.up, w.down);
    MoveColumns(0, w.shared_gate, w.shared_up, w.shared_down);
    for (Tensor* t : {&w.gate_bias, &w.up_bias}) {
      Move(*t, Cut(columns, Layout::Aligned(BlockOf(w.down))));
    }
    for (Tensor* t : {&w.shared_gate_bias, &w.shared_up_bias}) {
      Move(*t, Cut(0, Layout::Aligned(BlockOf(w.shared_down))));
    }
  }

  // Every place has the whole memory: it is a small part of the work.
  void MoveMemory(LayerWeights& w) {
    const Sharding whole(mesh_);
    for (Matrix* m : {&w.memory_q, &w.memory_k, &w.memory_v, &w.memory_gate, &w.memory_write,
                      &w.memory_keep, &w.memory_out}) {
      Move(m->stored, whole);
    }
    for (Tensor* t : {&w.memory_taps, &w.memory_keep_bias, &w.memory_rate, &w.memory_norm}) {
      Move(*t, whole);
    }
  }

  void MoveAttention(LayerWeights& w) {
    const ModelConfig& c = model_.config;
    const Sharding whole(mesh_);
    const int64_t group = c.heads / (c.kv_heads * heads_.repeats) * c.head_dim;
    const Architecture& known = *ArchitectureNamed(c.architecture);
    const bool by_head = !known.widths_normed && !known.centred;
    const int64_t gated = known.remembers ? 2 : 1;
    for (Tensor* t : {&w.q.stored, &w.q_bias}) Move(*t, Cut(0, Scaled(gated * group)));
    for (Tensor* t : {&w.k.stored, &w.k_bias, &w.v.stored, &w.v_bias}) MoveKeys(*t);
    if (by_head) {
      for (Tensor* t : {&w.q_norm, &w.k_norm}) Move(*t, whole);
    } else {
      Move(w.q_norm, Cut(0, Scaled(group)));
      MoveKeys(w.k_norm);
    }
    Move(w.o.stored, Cut(1, Scaled(group, BlockOf(w.o))));
    Move(w.sinks, Cut(0, Scaled(group / c.head_dim)));
  }

  void MoveLatentAttention(LayerWeights& w) {
    const ModelConfig& c = model_.config;
    const Sharding whole(mesh_);
    for (Tensor* t : {&w.q_down.stored, &w.kv_down.stored, &w.q_norm, &w.k_norm}) Move(*t, whole);
    Move(w.q.stored, Cut(0, Scaled(c.head_dim)));
    for (Tensor* t : {&w.k_up.stored, &w.v_up.stored}) Move(*t, Cut(0, Scaled(1)));
    Move(w.o.stored, Cut(1, Scaled(c.value_dim, BlockOf(w.o))));
  }

  // What belongs to keys or values, a row for each element.
  void MoveKeys(Tensor& t) {
    const ModelConfig& c = model_.config;
    if (!t) return;
    if (heads_.repeats > 1) {
      t = t.Unflatten(0, {c.kv_heads, c.head_dim})
              .RepeatInterleave(heads_.repeats, 0)
              .Flatten(0, 1);
    }
    Move(t, Cut(0, Scaled(c.head_dim)));
  }

  // The columns of a feed-forward part, whose axes begin at `axis`.
  void MoveColumns(int axis, Matrix& gate, Matrix& up, Matrix& down) {
    const Layout whole_blocks = Layout::Aligned(BlockOf(down));
    for (Tensor* t : {&gate.stored, &up.stored}) Move(*t, Cut(axis, whole_blocks));
    Move(down.stored, Cut(axis + 1, Layout()));
  }

  Sharding Cut(int axis, const Layout& layout) const {
    return Sharding(mesh_, {Placement::Shard(axis, layout)});
  }
  // The layout of the key heads, of an axis with `width` values for each in blocks of `block`.
  Layout Scaled(int64_t width, int64_t block = 1) const {
    const int64_t unit = heads_.layout.kind() == Layout::Kind::kAligned ? heads_.layout.unit() : 1;
    return Layout::Aligned(unit * width / block);
  }
  void Move(Tensor& t, const Sharding& to) { progress_.Move(t, to); }

  Model& model_;
  const Mesh mesh_;
  Progress& progress_;
  HeadDivision heads_;
};

void MoveWhole(Model* model, const Place& place, Progress& progress) {
  const bool tied = model->output.stored.Is(model->embedding.stored);
  const auto move = [&](Tensor& t) { progress.Move(t, place); };
  move(model->embedding.stored);
  move(model->embedding.scale);
  if (tied) {
    model->output = model->embedding;
  } else {
    move(model->output.stored);
    move(model->output.scale);
  }
  move(model->output_bias);
  MoveStreams(move, model);
  move(model->norm);
  move(model->norm_bias);
  for (LayerWeights& w : model->layers) {
    for (const auto& [name, matrix] : kMatrices) {
      move((w.*matrix).stored);
      move((w.*matrix).scale);
    }
    for (Tensor LayerWeights::*vector : kVectors) move(w.*vector);
  }
  model->division.whole = model->division.heads = place;
  model->division.logits = place;
  if (place.kind() == "CPU") model->division.tokens = place;
}

}  // namespace

HeadDivision DivideHeads(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t block,
                         int places) {
  const int64_t group = heads / kv_heads;
  HeadDivision best;
  int64_t least = heads + 1;
  for (int64_t repeats = 1; repeats <= group; ++repeats) {
    if (group % repeats != 0) continue;
    const int64_t queries = group / repeats, slots = kv_heads * repeats;
    const int64_t unit = std::lcm(queries * head_dim, block) / (queries * head_dim);
    const int64_t units = (slots + unit - 1) / unit;
    const int64_t most = std::min(slots, (units + places - 1) / places * unit) * queries;
    if (most >= least) continue;
    least = most;
    best = {repeats, unit == 1 ? Layout() : Layout::Aligned(unit)};
  }
  return best;
}

absl::Status Distribute(Model* model, const std::vector<Place>& places,
                        const LoadProgress& progress, bool copied) {
  Progress moved(model->bytes_stored, progress);
  try {
    if (places.size() > 1) {
      Mover(model, places, moved).Run();
    } else if (copied || !(places[0] == Place("CPU", 0))) {
      MoveWhole(model, places[0], moved);
    }
  } catch (const Error& e) {
    return e.status();
  }
  return absl::OkStatus();
}

}  // namespace tessera::llm
