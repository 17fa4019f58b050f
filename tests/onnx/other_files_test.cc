// Tensors whose data lies in other files than the model's.
#include "examples/onnx/other_files.h"

#include <filesystem>
#include <fstream>

#include "examples/onnx/conformance.h"
#include "examples/onnx/import.h"
#include "tests/graph/tensor_testing.h"
#include "tests/onnx/encode.h"
#include "tests/testing.h"

namespace tessera::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void Write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}
std::string Entry(const std::string& key, const std::string& value) {
  return Bytes(13, Bytes(1, key) + Bytes(2, value));
}
// A tensor of n elements with these entries of where they are.
std::string Elsewhere(const std::string& name, int64_t n, int64_t element,
                      const std::string& entries) {
  return Number(1, n) + Number(2, element) + Bytes(8, name) + entries + Number(14, 1);
}
// y = a, an initializer, + b, of a Constant.
std::string Sum(const std::string& a, const std::string& b) {
  return ModelText(GraphText({NodeText("Constant", {}, {"b"}, {TensorAttribute("value", b)}),
                              NodeText("Add", {"a", "b"}, {"y"})},
                             {}, {"y"}, {a}));
}

TEST(OnnxOtherFiles, AreRead) {
  const std::string folder = OwnTempDir() + "/other";
  Write(folder + "/w.data", Raw<float>({9, 1, 2}));
  Write(folder + "/in/b.data", Raw<float>({10, 20}));
  const std::string bytes =
      Sum(Elsewhere("a", 2, kElementFloat,
                    Entry("location", "w.data") + Entry("offset", "4") + Entry("length", "8")),
          Elsewhere("b", 2, kElementFloat, Entry("location", "in/b.data")));
  Model model = ValueOrThrow(ParseModel(bytes, "test"));
  EXPECT_ERROR(Importer(model, "CPU").Run({}), "TensorProto",
               "'a' is in the file 'w.data', which was not read");
  const auto files = ReadOtherFiles(model, folder);
  ASSERT_OK(files);
  EXPECT_EQ(files->size(), 2u);
  EXPECT_THAT(Importer(model, "CPU").Run({}).at(0).tensor.ToVector<float>(), ElementsAre(11, 22));
  Write(folder + "/model.onnx", bytes);
  Write(folder + "/test_data_set_0/output_0.pb", Floats("y", {2}, {11, 22}));
  const CaseResult r = RunCase(folder, {});
  EXPECT_EQ(r.kind, CaseResult::Kind::kPass) << r.why;
}

TEST(OnnxOtherFiles, HoldNarrowTypes) {
  const std::string folder = OwnTempDir() + "/narrow";
  Write(folder + "/w.data", "\x21\x0F");
  const std::string bytes =
      ModelText(GraphText({NodeText("Cast", {"a"}, {"y"}, {IntAttribute("to", kElementFloat)})}, {},
                          {"y"}, {Elsewhere("a", 3, 22, Entry("location", "w.data"))}));
  Model model = ValueOrThrow(ParseModel(bytes, "test"));
  ASSERT_OK(ReadOtherFiles(model, folder));
  EXPECT_THAT(Importer(model, "CPU").Run({}).at(0).tensor.ToVector<float>(), ElementsAre(1, 2, -1));
}

TEST(OnnxOtherFiles, AreNotTrusted) {
  const std::string folder = OwnTempDir() + "/hostile";
  Write(folder + "/w.data", "12345678");
  Write(OwnTempDir() + "/outside", "12345678");
  const auto error = [&](const std::string& entries) {
    const std::string bytes =
        ModelText(GraphText({}, {}, {}, {Elsewhere("w", 2, kElementFloat, entries)}));
    absl::StatusOr<Model> model = ParseModel(bytes, "bad.onnx");
    if (!model.ok()) return std::string(model.status().message());
    return std::string(ReadOtherFiles(*model, folder).status().message());
  };
  const std::string here = Entry("location", "w.data"), huge = "18446744073709551615";
  EXPECT_EQ(error(here), "");
  EXPECT_EQ(error(here + Entry("checksum", "?")), "");
  for (const std::string& outside : {OwnTempDir() + "/outside", std::string("../outside"),
                                     std::string("a/../../outside"), std::string("w.data\0", 7)}) {
    EXPECT_THAT(error(Entry("location", outside)), HasSubstr("outside the model's folder"));
  }
  EXPECT_THAT(error(""), HasSubstr("none is named"));
  EXPECT_THAT(error(Entry("location", "none")), HasSubstr("No such file"));
  EXPECT_THAT(error(Entry("location", ".")), HasSubstr("is a folder"));
  EXPECT_THAT(error(here + Entry("offset", "4")), HasSubstr("2 FLOAT elements has 4 bytes"));
  EXPECT_THAT(error(here + Entry("offset", "9")), HasSubstr("the file has 8"));
  EXPECT_THAT(error(here + Entry("offset", huge)), HasSubstr("the file has 8"));
  EXPECT_THAT(error(here + Entry("offset", "4") + Entry("length", huge)),
              HasSubstr("the file has 8"));
  EXPECT_THAT(error(here + Entry("length", "4")), HasSubstr("2 FLOAT elements has 4 bytes"));
  EXPECT_THAT(error(here + Entry("offset", "-1")), HasSubstr("'-1' is no number of bytes"));
  EXPECT_THAT(error(here + Entry("length", "x")), HasSubstr("'x' is no number of bytes"));
}

}  // namespace
}  // namespace tessera::onnx
