// No function of graph/tensor.h, or of the headers of free functions, is left out of the fuzzer's
// tables, nor of the rows whose derivative is compared with differences, but for those listed here
// with the reason.
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/testing.h"

namespace tessera {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

const std::vector<std::string> kFreeFunctions = {
    "graph/distributions.h",     "graph/index_functions.h", "graph/matrix_functions.h",
    "graph/network_functions.h", "graph/signals.h",         "graph/special_functions.h",
    "graph/statistics.h"};

// What gives tensors, by name: the public members, and the free functions after them and elsewhere.
std::set<std::string> Functions() {
  const std::string text = TextOf("graph/tensor.h");
  const size_t begin = text.find("class Tensor {"), hidden = text.find(" private:", begin),
               after = text.find("\n};", hidden), end = text.find("// ---- implementation");
  std::string shown = text.substr(begin, hidden - begin) + text.substr(after, end - after);
  for (const std::string& path : kFreeFunctions) shown += TextOf(path);
  const std::regex declared(
      "\n *(?:static )?(?:Tensor&?|std::vector<Tensor>|std::pair<Tensor, Tensor>|ValuesAndIndices|"
      "Normalised|SingularValues|UniqueElements) ([A-Z]\\w*)\\(");
  std::set<std::string> names;
  for (std::sregex_iterator i(shown.begin(), shown.end(), declared), none; i != none; ++i) {
    names.insert((*i)[1]);
  }
  return names;
}

const std::vector<std::string> kRows = {
    "tests/support/composite_rows.cc",       "tests/support/composite_rows_more.cc",
    "tests/support/composite_rows_rest.cc",  "tests/support/composite_rows_matrix.cc",
    "tests/support/composite_rows_named.cc", "tests/support/composite_rows_free.cc"};

// Those that no file calls, and no exception names; and exceptions that are none.
void ExpectCalled(std::vector<std::string> files,
                  const std::map<std::string, std::string>& exceptions) {
  std::string text;
  for (const std::string& path : files) text += TextOf(path);
  std::set<std::string> called;
  const std::regex call("([A-Z]\\w*)\\(");
  for (std::sregex_iterator i(text.begin(), text.end(), call), none; i != none; ++i) {
    called.insert((*i)[1]);
  }
  for (const std::string& name : Functions()) {
    EXPECT_TRUE(called.count(name) + exceptions.count(name) == 1)
        << name << (called.count(name) ? " is called: no exception" : " needs a row, or a reason");
  }
}

TEST(Covered, EveryFunctionIsFuzzed) {
  EXPECT_GT(Functions().size(), 300u);
  std::vector<std::string> files = kRows;
  files.insert(files.end(), {"tests/fuzz/random_tensors.cc", "tests/fuzz/random_composed.cc"});
  const std::string mark = "a mark on a tensor, no value: backward_test",
                    always = "what every case does";
  ExpectCalled(files, {{"AllRequiringGrad", mark},
                       {"RequireGrad", mark},
                       {"From", "as FromBytes, from which leaves are made"},
                       {"FromBlob", "memory of the caller: tests of transfers and files"},
                       {"Realize", always},
                       {"Shard", always}});
}

TEST(Covered, EveryDerivativeIsComparedWithDifferences) {
  std::vector<std::string> files = kRows;
  files.push_back("tests/runtime/grad_test.cc");
  const std::string none = "bools or whole numbers have no derivative", leaf = "a leaf",
                    mark = "what gradients are asked by";
  std::map<std::string, std::string> exceptions = {
      {"FromBlob", leaf}, {"FromBytes", leaf},   {"Rand", leaf},
      {"RandInt", leaf},  {"RequireGrad", mark}, {"AllRequiringGrad", mark}};
  for (const char* name : {"Any", "All", "ArgMax", "ArgMin", "ArgSort", "IsFinite", "IsInf",
                           "LogicalNot", "LogicalXor", "Permutation"}) {
    exceptions[name] = none;
  }
  ExpectCalled(files, exceptions);
}

}  // namespace
}  // namespace tessera
