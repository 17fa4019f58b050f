// Reading ONNX files: what is in them, and every class of malformed file, refused in one line.
#include "examples/onnx/proto.h"

#include <limits>

#include "tests/onnx/encode.h"
#include "tests/support/allocations.h"
#include "tests/testing.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Small() {
  const std::string relu = NodeText("Relu", {"x"}, {"y"});
  const std::string add = NodeText("Add", {"y", "w"}, {"z"}, {IntAttribute("axis", -3)});
  return ModelText(GraphText({relu, add}, {"x"}, {"z"}, {Floats("w", {2}, {1, 2})}));
}

TEST(OnnxProto, ReadsAModel) {
  const std::string bytes = Small();
  const absl::StatusOr<Model> model = ParseModel(bytes, "small");
  ASSERT_OK(model);
  EXPECT_EQ(model->ir_version, 8);
  EXPECT_EQ(model->opsets.at(""), 20);
  ASSERT_EQ(model->graphs.size(), 1u);
  const Graph& g = model->graphs[0];
  ASSERT_EQ(g.nodes.size(), 2u);
  EXPECT_EQ(g.nodes[1].op, "Add");
  EXPECT_THAT(g.nodes[1].inputs, ElementsAre("y", "w"));
  EXPECT_EQ(g.nodes[1].attributes.at("axis").i, -3);
  EXPECT_EQ(g.inputs[0].name, "x");
  ASSERT_EQ(g.initializers.size(), 1u);
  EXPECT_THAT(g.initializers[0].dims, ElementsAre(2));
  EXPECT_EQ(g.initializers[0].bytes(), Raw<float>({1, 2}));
}

// The same elements as raw bytes, as one field each and packed; small types by their bits.
TEST(OnnxProto, ReadsTypedFields) {
  const auto read = [](const std::string& bytes) {
    const absl::StatusOr<TensorData> t = ParseTensor(bytes, "t");
    EXPECT_OK(t);
    return t.ok() ? std::string(t->bytes()) : "";
  };
  const std::string head = Number(1, 2);
  const std::string floats = Raw<float>({1.5f, -2});
  EXPECT_EQ(read(head + Number(2, 1) + Bytes(4, floats)), floats);
  EXPECT_EQ(
      read(head + Number(2, 1) + Tag(4, 5) + floats.substr(0, 4) + Tag(4, 5) + floats.substr(4)),
      floats);
  EXPECT_EQ(read(head + Number(2, 7) + Bytes(7, Varint(3) + Varint(~0ull))), Raw<int64_t>({3, -1}));
  EXPECT_EQ(read(head + Number(2, 7) + Number(7, 3) + Number(7, -1)), Raw<int64_t>({3, -1}));
  EXPECT_EQ(read(head + Number(2, 3) + Number(5, -1) + Number(5, 127)), Raw<int8_t>({-1, 127}));
  EXPECT_EQ(read(head + Number(2, 10) + Number(5, 0x3C00) + Number(5, 1)),
            Raw<uint16_t>({0x3C00, 1}));
  EXPECT_EQ(read(head + Number(2, 12) + Number(11, 0xFFFFFFFF) + Number(11, 1)),
            Raw<uint32_t>({0xFFFFFFFF, 1}));
  EXPECT_EQ(read(head + Number(2, 11) + Bytes(10, Raw<double>({1, 2}))), Raw<double>({1, 2}));
  EXPECT_EQ(read(head + Number(2, 9) + Number(5, 256) + Number(5, 0)), std::string("\1\0", 2));
}

TEST(OnnxProto, NumbersGraphsWithinGraphs) {
  const std::string inner = GraphText({NodeText("Neg", {"x"}, {"a"})}, {}, {"a"});
  const std::string middle =
      GraphText({NodeText("If", {"c"}, {"b"}, {GraphAttribute("then_branch", inner)})}, {}, {"b"});
  const std::string outer = GraphText(
      {NodeText("If", {"c"}, {"y"},
                {GraphAttribute("then_branch", middle), GraphAttribute("else_branch", inner)})},
      {"x"}, {"y"});
  const std::string bytes = ModelText(outer);
  const absl::StatusOr<Model> model = ParseModel(bytes, "nested");
  ASSERT_OK(model);
  ASSERT_EQ(model->graphs.size(), 4u);
  const Node& node = model->graphs[0].nodes[0];
  EXPECT_EQ(model->graphs[node.attributes.at("else_branch").graph].nodes[0].op, "Neg");
  const Graph& then = model->graphs[node.attributes.at("then_branch").graph];
  EXPECT_EQ(model->graphs[then.nodes[0].attributes.at("then_branch").graph].nodes[0].op, "Neg");
}

std::string Nested(int depth) {
  std::string graph = GraphText({}, {}, {});
  for (int i = 0; i < depth; ++i) {
    graph =
        GraphText({NodeText("If", {"c"}, {"y"}, {GraphAttribute("then_branch", graph)})}, {}, {});
  }
  return ModelText(graph);
}

struct Row {
  const char* what;
  std::string bytes;
  const char* error;
};

std::string InNode(const std::string& fields) { return ModelText(GraphText({fields}, {}, {})); }
std::string InTensor(const std::string& fields) {
  return ModelText(GraphText({}, {}, {}, {fields}));
}

std::vector<Row> Rows() {
  const std::string op = Bytes(4, "Add");
  const std::string big = Number(1, int64_t{1} << 40);
  return {
      {"empty", "", "there is no graph"},
      {"text", "hello, this is no model", "wire type"},
      {"no graph", Number(1, 8), "there is no graph"},
      {"two graphs", ModelText("") + Bytes(7, ""), "a second graph"},
      {"field 0", Varint(0), "field number 0"},
      {"field 2^61", Varint(~0ull), "field number"},
      {"group", Tag(1, 3), "wire type 3"},
      {"wire type 6", Tag(1, 6), "wire type 6"},
      {"no value", Tag(1, 0), "past the end"},
      {"endless number", Tag(1, 0) + std::string(10, '\xFF'), "more than 64 bits"},
      {"short fixed32", Tag(3, 5) + "ab", "4 bytes, and its message ends after 2"},
      {"short fixed64", Tag(3, 1) + "abcdefg", "8 bytes, and its message ends after 7"},
      {"past the end", Tag(7, 2) + Varint(100) + "abc", "100 bytes, and its message ends after 3"},
      {"huge", Tag(7, 2) + Varint(~0ull), "its message ends after 0"},
      {"graph is a number", Number(7, 1), "wire type 0"},
      {"node is a number", ModelText(Number(1, 1)), "wire type 0"},
      {"node without op", InNode(Bytes(1, "x")), "without op_type"},
      {"node past the graph", ModelText(Tag(1, 2) + Varint(9) + op), "its message ends after"},
      {"version is text", Bytes(7, "") + Bytes(8, Bytes(2, "x")), "wire type 2"},
      {"attribute twice",
       InNode(op + Bytes(5, IntAttribute("a", 1)) + Bytes(5, IntAttribute("a", 2))),
       "'a' is there twice"},
      {"tensor attribute without value", InNode(op + Bytes(5, Bytes(1, "a") + Number(20, 4))),
       "'a' has no value"},
      {"graph attribute without value", InNode(op + Bytes(5, Bytes(1, "a") + Number(20, 5))),
       "'a' has no value"},
      {"floats of 3 bytes", InNode(op + Bytes(5, Bytes(1, "a") + Bytes(7, "abc"))),
       "no multiple of 4"},
      {"f is an integer", InNode(op + Bytes(5, Bytes(1, "a") + Number(2, 1))), "wire type 0"},
      {"negative extent", InTensor(Number(1, -1) + Number(2, 1)), "extent of -1"},
      {"too many elements", InTensor(big + big + Number(2, 1)), "too many elements"},
      {"too many beside a zero", InTensor(Number(1, 0) + big + big + Number(2, 1)),
       "too many elements"},
      {"more elements than bytes", InTensor(big + Number(2, 1) + Bytes(9, "abcd")),
       "1099511627776 FLOAT elements has 4 bytes"},
      {"fewer elements than bytes", InTensor(Number(2, 1) + Bytes(9, "abcdefgh")),
       "1 FLOAT elements has 8 bytes"},
      {"no data", InTensor(Number(1, 3) + Number(2, 7)), "3 INT64 elements has 0 bytes"},
      {"doubles of 7 bytes", InTensor(Number(2, 11) + Bytes(10, "abcdefg")), "no multiple of 8"},
      {"data elsewhere", InTensor(Number(2, 1) + Number(14, 1)), "in another file"},
      {"graphs too deep", Nested(kMaxNesting), "deeper than 32"},
  };
}

TEST(OnnxProto, RefusesBadFiles) {
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.what);
    ForgetAllocations();
    const absl::Status status = ParseModel(row.bytes, "bad.onnx").status();
    EXPECT_LE(LargestAllocation(), 64 * row.bytes.size() + 65536);
    ASSERT_FALSE(status.ok());
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(row.error));
    EXPECT_THAT(message, HasSubstr("bad.onnx")) << "the file is named";
    EXPECT_THAT(message, Not(HasSubstr("\n")));
  }
  EXPECT_OK(ParseModel(Nested(kMaxNesting - 1), "deep"));
}

// However a file is cut or changed, reading it ends, in bounds and in little memory.
TEST(OnnxProto, SurvivesCutsAndChanges) {
  const std::string good = Small();
  int refused = 0;
  for (size_t n = 0; n < good.size(); ++n) {
    const std::string cut = good.substr(0, n);
    refused += !ParseModel(cut, "cut").ok();
    std::string changed = good;
    for (const unsigned char byte : {0x00, 0x7F, 0x80, 0xFF}) {
      changed[n] = static_cast<char>(byte);
      ForgetAllocations();
      refused += !ParseModel(changed, "changed").ok();
      EXPECT_LE(LargestAllocation(), 64 * changed.size() + 65536);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(OnnxProto, KnowsElementTypes) {
  EXPECT_EQ(DTypeOfElement(16), kBFloat16);
  EXPECT_EQ(DTypeOfElement(17), kFloat8E4M3);
  EXPECT_EQ(DTypeOfElement(14), std::nullopt);
  EXPECT_EQ(DTypeOfElement(22), kInt8);
  EXPECT_TRUE(IsNarrow(22));
  EXPECT_FALSE(IsNarrow(3));
  EXPECT_EQ(DTypeOfElement(-1), std::nullopt);
  EXPECT_EQ(DTypeOfElement(std::numeric_limits<int64_t>::max()), std::nullopt);
  EXPECT_EQ(ElementName(22), "INT4");
  EXPECT_EQ(ElementName(99), "type 99");
}

}  // namespace
}  // namespace tessera::onnx
