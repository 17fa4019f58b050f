// Models with changed bytes: building their graphs ends in a graph or in a tessera::Error.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>

#include "examples/onnx/conformance.h"
#include "examples/onnx/import.h"
#include "tests/testing.h"

namespace tessera::onnx {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string> ReadInputs(const std::string& folder) {
  std::vector<std::string> inputs;
  for (int i = 0;; ++i) {
    inputs.push_back(ReadFile(absl::StrCat(folder, "/test_data_set_0/input_", i, ".pb")));
    if (inputs.back().empty()) break;
  }
  inputs.pop_back();
  return inputs;
}

// What became of one model: refused by the parser, by the importer, or built.
enum class End { kNotParsed, kRefused, kBuilt };
End Build(const Model& model, const std::vector<std::string>& inputs) {
  try {
    const std::set<std::string> host = HostInputs(model);
    absl::flat_hash_map<std::string, Value> values;
    for (size_t i = 0; i < inputs.size() && i < model.graphs[0].inputs.size(); ++i) {
      const std::string& name = model.graphs[0].inputs[i].name;
      const ValueInfo::Kind kind = model.graphs[0].inputs[i].kind;
      const ValueData v = ValueOrThrow(ParseValue(inputs[i], kind, "input"));
      values[name] = MakeValue(v, "CPU", host.contains(name));
    }
    Importer(model, "CPU").Run(values);
  } catch (const Error&) {
    return End::kRefused;
  }
  return End::kBuilt;
}
End Build(const std::string& bytes, const std::vector<std::string>& inputs) {
  const absl::StatusOr<Model> model = ParseModel(bytes, "changed");
  return model.ok() ? Build(*model, inputs) : End::kNotParsed;
}

void ChangeModels(int changes) {
  std::mt19937 random(7);
  int ends[3] = {0, 0, 0};
  for (const std::string& folder : CaseFolders("tests/data/onnx-node")) {
    const std::string model = ReadFile(folder + "/model.onnx");
    const std::vector<std::string> inputs = ReadInputs(folder);
    ASSERT_EQ(Build(model, inputs), End::kBuilt) << folder;
    for (int k = 0; k < changes; ++k) {
      SCOPED_TRACE(absl::StrCat(folder, ", change ", k));
      std::string changed = model;
      std::vector<std::string> given = inputs;
      for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
        changed[random() % changed.size()] = static_cast<char>(random());
      }
      // Also values that set shapes: the last bytes of an input are elements.
      if (!given.empty() && random() % 2 == 0) {
        std::string& input = given[random() % given.size()];
        input[input.size() - 1 - random() % std::min<size_t>(input.size(), 16)] =
            static_cast<char>(random());
      }
      ++ends[static_cast<int>(Build(changed, given))];
    }
  }
  EXPECT_GT(ends[0], 0);
  EXPECT_GT(ends[1], 0);
  EXPECT_GT(ends[2], 0);
  std::cout << ends[0] << " not parsed, " << ends[1] << " refused, " << ends[2] << " built\n";
}

// Numbers that break what is not checked.
int64_t Nasty(std::mt19937& random) {
  constexpr int64_t kNumbers[] = {
      0,  1,   2,          3,         4,         -1,        -2,           -3,        7,
      64, 255, 1000000007, 1ll << 31, 1ll << 40, 1ll << 62, -(1ll << 40), INT64_MIN, INT64_MAX};
  return kNumbers[random() % std::size(kNumbers)];
}
float NastyFloat(std::mt19937& random) {
  constexpr float kNumbers[] = {0, 1, -1, 0.5f, 1e30f, -1e30f, 1e-30f, INFINITY, -INFINITY, NAN};
  return kNumbers[random() % std::size(kNumbers)];
}
// One change that keeps the file well-formed: of an op, an attribute, an input or a version.
void Change(Model& model, const std::vector<std::string>& ops, std::mt19937& random) {
  std::vector<Node>& nodes = model.graphs[0].nodes;
  if (nodes.empty()) return;
  Node& node = nodes[random() % nodes.size()];
  switch (random() % 5) {
    case 0:
      node.op = ops[random() % ops.size()];
      return;
    case 1:
      if (!node.inputs.empty()) node.inputs[random() % node.inputs.size()].clear();
      return;
    case 2:
      if (!node.inputs.empty()) node.inputs.push_back(node.inputs[random() % node.inputs.size()]);
      return;
    case 3:
      model.opsets[""] = 1 + static_cast<int64_t>(random() % 26);
      return;
  }
  for (auto& [name, a] : node.attributes) {
    if (random() % 2 == 0) continue;
    a.i = Nasty(random);
    a.f = NastyFloat(random);
    if (random() % 2 == 0) a.ints.resize(random() % 5);
    for (int64_t& v : a.ints) v = random() % 2 == 0 ? Nasty(random) : v;
    for (float& v : a.floats) v = random() % 2 == 0 ? NastyFloat(random) : v;
    if (random() % 4 == 0) a.s = "TWELVE";
  }
}

void ChangeNodes(int changes) {
  std::vector<std::string> ops;
  const std::vector<std::string> folders = CaseFolders("tests/data/onnx-node");
  for (const std::string& folder : folders) {
    const std::string bytes = ReadFile(folder + "/model.onnx");
    const Model model = ValueOrThrow(ParseModel(bytes, folder));
    for (const Node& node : model.graphs[0].nodes) ops.push_back(node.op);
  }
  std::mt19937 random(11);
  int ends[3] = {0, 0, 0};
  for (const std::string& folder : folders) {
    const std::string bytes = ReadFile(folder + "/model.onnx");
    const std::vector<std::string> inputs = ReadInputs(folder);
    for (int k = 0; k < changes; ++k) {
      SCOPED_TRACE(absl::StrCat(folder, ", change ", k));
      Model model = ValueOrThrow(ParseModel(bytes, folder));
      for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) Change(model, ops, random);
      ++ends[static_cast<int>(Build(model, inputs))];
    }
  }
  EXPECT_GT(ends[1], 0);
  EXPECT_GT(ends[2], 0);
  std::cout << ends[1] << " refused, " << ends[2] << " built\n";
}

TEST(OnnxHostile, ChangedNodesSlow) { ChangeNodes(20); }
TEST(OnnxHostile, ChangedNodesLong) { ChangeNodes(2000); }
TEST(OnnxHostile, ChangedModelsSlow) { ChangeModels(5); }
TEST(OnnxHostile, ChangedModelsLong) { ChangeModels(500); }

}  // namespace
}  // namespace tessera::onnx
