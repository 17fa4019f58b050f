// Models over several devices: the same text and logits as on one, with no more traffic than the
// division needs.
#include "examples/llm/parallel.h"

#include <cmath>

#include "absl/strings/str_split.h"
#include "examples/llm/generate.h"
#include "examples/llm/session.h"
#include "runtime/device.h"
#include "runtime/runtime.h"
#include "tests/llm/models.h"

namespace tessera::llm {
namespace {

using ::testing::HasSubstr;

std::vector<Place> Cpus(int n, int first = 0) {
  std::vector<Place> out;
  for (int i = 0; i < n; ++i) out.emplace_back("CPU", first + i);
  return out;
}

void ExpectStory(const Model& model) {
  Session session(model, {});
  std::string text = "Once upon a time";
  GenerateOptions options;
  options.max_tokens = 252;
  ASSERT_OK_AND_ASSIGN(const Generated g,
                       Generate(session, model, model.tokenizer->Encode(text, {}), options,
                                [&](const std::string& t) { text += t; }));
  EXPECT_EQ(text + "\n", ReadFile(kStoryText));
}

void ExpectStoryOn(const std::string& path, const std::vector<Place>& places) {
  SCOPED_TRACE(path + " on " + Mesh(PlaceList(places)).ToString());
  ASSERT_OK_AND_ASSIGN(Model model, LoadModel(path));
  ASSERT_OK(Distribute(&model, places));
  ExpectStory(model);
}

TEST(Parallel, TellsTheSameStory) {
  ExpectStoryOn(kStory, Cpus(1, 3));
  for (int places : {2, 3, 5}) ExpectStoryOn(kStory, Cpus(places));
  ExpectStoryOn(kStory, {Place("CPU", 4), Place("CPU", 1)});
}
TEST(Parallel, TellsTheSameStoryFromSafetensors) {
  SKIP_WITHOUT_DATA();
  for (int places : {2, 3, 5}) {
    ExpectStoryOn(std::string(kData) + "models/stories260K/hf", Cpus(places));
  }
}

// Weights that are copied are no longer those of the file, and the story is the same.
TEST(Parallel, TellsTheSameStoryFromCopiedWeights) {
  ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
  const void* mapped = model.layers[0].q.stored.Data<float>();
  ASSERT_OK(Distribute(&model, Cpus(1), {}, /*copied=*/true));
  EXPECT_NE(model.layers[0].q.stored.Data<float>(), mapped);
  EXPECT_TRUE(model.output.stored.Is(model.embedding.stored));
  ExpectStory(model);
}

// The logits of each token, fed as a prompt in parts and then one by one.
std::vector<std::vector<float>> LogitsOf(Model model, const std::vector<Place>& places,
                                         Activations activations) {
  EXPECT_OK(Distribute(&model, places));
  SessionOptions options;
  options.context = 40;
  options.activations = activations;
  options.cache = kFloat32;  // in f16 sums in another order may be rounded to its next number
  Session session(model, options);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 22; ++i) {
    tokens.push_back((i * 17 + 3) % static_cast<int>(model.config.vocabulary));
  }
  std::vector<std::vector<float>> out;
  size_t fed = 0;
  for (size_t n : {16, 1, 3, 1, 1}) {
    const float* logits = session.Feed(absl::MakeConstSpan(tokens).subspan(fed, n));
    fed += n;
    out.emplace_back(logits, logits + model.config.vocabulary);
  }
  session.Rewind(0);
  out.push_back(session.FeedForAll(tokens));
  return out;
}

void ExpectEqualLogits(const std::function<Model()>& load, const std::vector<int>& counts,
                       double tolerance, Activations activations = Activations::kF32) {
  const auto expected = LogitsOf(load(), Cpus(1), activations);
  double largest = 0;
  for (float v : expected.back()) largest = std::max<double>(largest, std::fabs(v));
  for (int places : counts) {
    const auto got = LogitsOf(load(), Cpus(places), activations);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t t = 0; t < got.size(); ++t) {
      ASSERT_EQ(got[t].size(), expected[t].size());
      for (size_t i = 0; i < got[t].size(); ++i) {
        ASSERT_NEAR(got[t][i], expected[t][i], tolerance * largest)
            << places << " places, part " << t << ", logit " << i;
      }
    }
  }
}

ModelConfig Small(const std::string& architecture, int64_t heads, int64_t kv_heads) {
  ModelConfig c;
  c.architecture = architecture;
  c.layers = 2;
  c.dim = 24;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = 4;
  c.ffn = 37;
  c.vocabulary = 50;
  c.context = 48;
  c.norm_eps = 1e-5;
  return c;
}

void ExpectEqualLogits(const ModelConfig& config, bool tied, const std::vector<int>& counts) {
  const RandomWeights weights = WeightsFor(config, tied);
  ExpectEqualLogits(
      [&] {
        absl::StatusOr<Model> model = MakeModel(config, nullptr, weights.set, true, "test");
        EXPECT_OK(model.status());
        return *std::move(model);
      },
      counts, 1e-5);
}

TEST(Parallel, HeadsThatDoNotDivide) { ExpectEqualLogits(Small("llama", 6, 6), true, {2, 4, 5}); }
TEST(Parallel, FewerKeyHeadsThanPlacesSlow) {
  ExpectEqualLogits(Small("mistral", 6, 2), false, {3, 5});
  ExpectEqualLogits(Small("llama", 4, 1), true, {2, 3});
}
TEST(Parallel, BiasesOfProjections) {
  ExpectEqualLogits(Small("qwen2", 6, 2), true, {3});
  ModelConfig everywhere = Small("llama", 6, 2);
  everywhere.attention_biased = everywhere.ffn_biased = true;
  ExpectEqualLogits(everywhere, false, {1, 3, 5});
}
TEST(Parallel, NormsOfQueriesAndKeys) { ExpectEqualLogits(Small("qwen3", 6, 3), false, {2, 5}); }
TEST(Parallel, MorePlacesThanHeads) { ExpectEqualLogits(Small("llama", 2, 1), true, {5}); }

// A head has 8 values and a block 32: heads are cut in groups whose columns are whole blocks.
TEST(Parallel, QuantisedBlocksStayWholeSlow) {
  SKIP_WITHOUT_DATA();
  const std::string path = std::string(kData) + "models/stories260K/stories260K-Q8_0.gguf";
  const auto load = [&] {
    absl::StatusOr<Model> model = LoadModel(path);
    EXPECT_OK(model.status());
    return *std::move(model);
  };
  ExpectEqualLogits(load, {2, 3, 5}, 1e-5);
  // A sum in another order may be rounded to the next integer: a 254th of its block's greatest.
  ExpectEqualLogits(load, {2, 3, 5}, 2e-3, Activations::kInt8);
}

TEST(Parallel, MovingTellsHowFarItIs) {
  uint64_t last = 0, all = 0;
  int calls = 0;
  const LoadProgress progress = [&](uint64_t done, uint64_t bytes) {
    EXPECT_GE(done, last);
    last = done;
    all = bytes;
    return ++calls < 5;
  };
  ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
  EXPECT_THAT(Distribute(&model, Cpus(2), progress),
              StatusIs(absl::StatusCode::kCancelled, "interrupted"));
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(all, model.bytes_stored);
  calls = -1000;
  last = 0;
  ASSERT_OK_AND_ASSIGN(Model whole, LoadModel(kStory));
  EXPECT_OK(Distribute(&whole, Cpus(2), progress));
  EXPECT_EQ(last, all);
}

TEST(Parallel, DividesHeads) {
  const auto repeats = [](int64_t heads, int64_t kv_heads, int places) {
    return DivideHeads(heads, kv_heads, 64, 1, places).repeats;
  };
  EXPECT_EQ(repeats(32, 8, 2), 1);
  EXPECT_EQ(repeats(32, 8, 8), 1);
  EXPECT_EQ(repeats(32, 8, 16), 2);
  EXPECT_EQ(repeats(8, 1, 2), 2);
  EXPECT_EQ(repeats(8, 1, 3), 8);   // 3, 3 and 2 queries; with 4 repeats 4, 2 and 2
  EXPECT_EQ(repeats(8, 8, 16), 1);  // some places have none
  EXPECT_EQ(DivideHeads(8, 4, 8, 32, 2).layout, Layout::Aligned(2));
  EXPECT_EQ(DivideHeads(8, 4, 16, 32, 2).layout, Layout());
}

TEST(Parallel, WeightsLieWhereTheyAreUsed) {
  ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
  ASSERT_OK(Distribute(&model, Cpus(2)));
  const LayerWeights& w = model.layers[0];
  EXPECT_EQ(w.q.stored.device().ToString(), "CPU:0-1{S0:aligned(16)}");
  EXPECT_EQ(w.o.stored.device().ToString(), "CPU:0-1{S1:aligned(16)}");
  EXPECT_EQ(w.down.stored.device().ToString(), "CPU:0-1{S1}");
  EXPECT_EQ(w.ffn_norm.device().ToString(), "CPU:0-1{R}");
  EXPECT_EQ(model.embedding.stored.device().ToString(), "CPU:0-1{S0}");
}

// Two reductions a layer, one for the embedding, one gather: of the logits.
TEST(Parallel, AStepMovesWhatItMust) {
  for (int places : {2, 3, 5}) {
    ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
    ASSERT_OK(Distribute(&model, Cpus(places)));
    Session session(model, {});
    const std::string text = session.ExplainStep();
    int reductions = 0, gathers = 0;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      reductions += absl::StrContains(line, " all-reduce ADD ");
      gathers += absl::StrContains(line, " exchange ");
    }
    EXPECT_EQ(reductions, 2 * model.config.layers) << text;
    EXPECT_EQ(gathers, 1) << text;
    EXPECT_THAT(text, HasSubstr(" all-reduce select "));
    EXPECT_THAT(text, HasSubstr(", 0 copies, 1 exchange, 11 all-reduces, "));
  }
}

TEST(Parallel, AStepAfterTheFirstPlansAndAllocatesNothing) {
  ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
  ASSERT_OK(Distribute(&model, Cpus(3)));
  Session session(model, {});
  int32_t token = 1;
  for (int i = 0; i < 3; ++i) session.Feed({&token, 1});
  const RuntimeStats before = GetRuntimeStats();
  const auto memory = [] {
    std::vector<std::pair<int64_t, int64_t>> out;
    for (const Place& p : Cpus(3)) {
      const MemoryStats stats = (*GetDevice(p))->Memory();
      out.emplace_back(stats.allocations, stats.live_bytes);
    }
    return out;
  };
  const auto held = memory();
  for (int i = 0; i < 50; ++i) session.Feed({&token, 1});
  EXPECT_EQ(GetRuntimeStats().plans_made, before.plans_made);
  EXPECT_EQ(GetRuntimeStats().plans_reused, before.plans_reused);
  EXPECT_GT(GetRuntimeStats().kernels_run, before.kernels_run);
  EXPECT_EQ(memory(), held);
  EXPECT_EQ(session.position(), 53);
}

TEST(Parallel, PlacesThatCannotBeAMesh) {
  ASSERT_OK_AND_ASSIGN(Model model, LoadModel(kStory));
  EXPECT_THAT(Distribute(&model, {Place("CPU", 0), Place("CPU", 0)}),
              StatusIs(absl::StatusCode::kInvalidArgument, "repeated"));
}

}  // namespace
}  // namespace tessera::llm
