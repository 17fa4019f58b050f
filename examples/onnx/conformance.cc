// Running ONNX backend node tests, on one device and sharded.
#include "examples/onnx/conformance.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "examples/onnx/import.h"
#include "examples/onnx/other_files.h"
#include "examples/onnx/plain.h"
#include "examples/onnx/strings.h"
#include "graph/least_bytes.h"
#include "runtime/mapped_file.h"
#include "runtime/runtime.h"

namespace tessera::onnx {
namespace {

namespace fs = std::filesystem;
using File = std::shared_ptr<const MappedFile>;

std::string ShapeText(const std::vector<int64_t>& dims) {
  return absl::StrCat("(", absl::StrJoin(dims, ", "), ")");
}

// The values of input_0.pb, input_1.pb, ... (or output_), and the files that they point into.
struct DataSet {
  std::vector<ValueData> inputs, outputs;
  std::vector<File> files;
};
absl::StatusOr<std::vector<ValueData>> ReadAll(const std::string& prefix,
                                               absl::Span<const ValueInfo> infos, DataSet& set) {
  std::vector<ValueData> out;
  for (size_t i = 0;; ++i) {
    const std::string path = absl::StrCat(prefix, i, ".pb");
    std::error_code error;
    if (!fs::exists(path, error)) return out;
    absl::string_view bytes;  // of a message without fields there are none
    if (fs::file_size(path, error) != 0) {
      ASSIGN_OR_RETURN(const File file, MappedFile::Open(path));
      set.files.push_back(file);
      bytes = file->bytes();
    }
    const ValueInfo::Kind kind = i < infos.size() ? infos[i].kind : ValueInfo::Kind::kTensor;
    ASSIGN_OR_RETURN(ValueData v, ParseValue(bytes, kind, path));
    out.push_back(std::move(v));
  }
}
// The inputs that files are of: before version 4 of the format initializers are listed as inputs,
// too.
std::vector<ValueInfo> GivenInputs(const Graph& graph) {
  absl::flat_hash_set<absl::string_view> initializers;
  for (const TensorData& t : graph.initializers) initializers.insert(t.name);
  std::vector<ValueInfo> out;
  for (const ValueInfo& info : graph.inputs) {
    if (!initializers.contains(info.name)) out.push_back(info);
  }
  return out;
}
absl::StatusOr<DataSet> ReadDataSet(const std::string& folder, const Graph& graph) {
  DataSet set;
  ASSIGN_OR_RETURN(set.inputs, ReadAll(folder + "/input_", GivenInputs(graph), set));
  ASSIGN_OR_RETURN(set.outputs, ReadAll(folder + "/output_", graph.outputs, set));
  return set;
}

// How the inputs of one run lie.
struct Placing {
  std::string name;  // for messages: "sharded on axis 1, uneven: "
  Device data;       // of what is not sharded
  std::optional<int> axis;
  bool uneven = false;
  std::vector<Place> places;
};

// Everything at the end: the first place has nothing, the last most.
Layout UnevenLayout(int64_t extent, int places) {
  absl::InlinedVector<int64_t, 4> sizes(places, 0);
  int64_t left = extent;
  for (int i = places - 1; i > 0; --i) {
    sizes[i] = i == 1 ? left : (2 * left + 2) / 3;
    left -= sizes[i];
  }
  return Layout::Sizes({sizes.begin(), sizes.end()});
}
Tensor Placed(const Tensor& x, const Placing& placing) {
  if (!placing.axis || *placing.axis >= x.rank()) {
    return x.device() == placing.data ? x : x.To(placing.data).Realize();
  }
  const int places = static_cast<int>(placing.data.places().size());
  const Layout layout = placing.uneven ? UnevenLayout(x.size(*placing.axis), places) : Layout();
  return x.To(Sharding(PlaceList(placing.places), *placing.axis, layout)).Realize();
}

bool IsSharded(const Tensor& t) {
  return t.device().is_sharding() && t.device().sharding().Has(Placement::Kind::kShard);
}

// The flow that all nodes of a model have; of nodes that are not elementwise there may be one.
Flow FlowOf(const Model& model) {
  const std::vector<Node>& nodes = model.graphs[0].nodes;
  Flow flow = Flow::kElementwise;
  for (const Node& node : nodes) {
    const OpRow* row = FindOp(node);
    if (row == nullptr || row->flow == Flow::kAny) return Flow::kAny;
    if (row->flow != Flow::kElementwise && nodes.size() > 1) return Flow::kAny;
    flow = row->flow;
  }
  return flow;
}

std::string LiesWhole(const Tensor& y) {
  return absl::StrCat("the result lies on ", y.device().ToString(),
                      " though its inputs are sharded");
}

// What has the shape of the result, and goes into it, shards it; where all inputs lie alike,
// nothing moves.
std::string ElementwiseFault(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                             int64_t moved) {
  const bool alike = std::all_of(inputs.begin(), inputs.end(), [&](const Tensor& x) {
    return x.shape() == inputs[0].shape() && x.device() == inputs[0].device();
  });
  if (alike && moved > 0) return absl::StrCat(moved, " bytes moved where none may be");
  for (const Tensor& y : outputs) {
    if (!y.device() || IsSharded(y)) continue;
    const std::vector<UOp> made_of = TopoSort({&y.uop(), 1});
    for (const Tensor& x : inputs) {
      if (!IsSharded(x) || !(x.shape() == y.shape())) continue;
      if (x.size(*x.device().sharding().axis()) <= 1) continue;
      if (std::find(made_of.begin(), made_of.end(), x.uop()) != made_of.end()) return LiesWhole(y);
    }
  }
  return "";
}

// Positions that are counted one by one; of larger graphs the bytes are printed alone.
constexpr int64_t kMostCounted = 1 << 20;

}  // namespace

std::string PlacementFault(const Model& model, const std::vector<Tensor>& inputs,
                           const std::vector<Tensor>& outputs, int64_t moved) {
  std::vector<UOp> roots;
  for (const Tensor& y : outputs) roots.push_back(y.uop());
  if (const std::optional<int64_t> least = LeastBytes(roots, kMostCounted);
      least && *least < moved) {
    return absl::StrCat(moved, " bytes moved where ", *least, " would do");
  }
  const Flow flow = FlowOf(model);
  if (flow == Flow::kAny || inputs.empty() || !IsSharded(inputs[0])) return "";
  if (flow == Flow::kElementwise) return ElementwiseFault(inputs, outputs, moved);
  const Tensor& x = inputs[0];
  const int axis = *x.device().sharding().axis();
  if (flow == Flow::kBatch) {
    const Tensor& y = outputs[0];
    const bool kept = axis == 0 && x.size(0) > 1 && y.rank() > 0 && y.size(0) == x.size(0);
    return kept && !IsSharded(y) ? LiesWhole(y) : "";
  }
  const auto places = static_cast<int64_t>(x.device().places().size());
  int64_t allowed = 0;
  for (const Tensor& y : outputs) {
    if (!y.device()) continue;  // made of numbers alone
    // An axis that is reduced gives all of the result to each place: what an all-reduce moves, of
    // numbers as wide as sums are, and two of them where a maximum comes before a sum.
    if (flow == Flow::kReduce && !IsSharded(y)) {
      allowed += 2 * 2 * (places - 1) * y.elements() * std::max(4, y.dtype().bytes());
    }
    const bool kept = flow == Flow::kPermute ||
                      (y.rank() == x.rank() && y.size(axis) == x.size(axis) && y.size(axis) > 1);
    if (kept && !IsSharded(y)) return LiesWhole(y);
  }
  if (moved <= allowed) return "";
  return absl::StrCat(moved, " bytes moved where ", allowed, " may be");
}

namespace {

struct RunOutcome {
  std::string fault;  // empty: as expected
  bool random = false;
  int64_t moved = 0;
  bool whole = false;  // no result is sharded
};

std::string StringsDifference(const Value& got, const TensorData& expected) {
  const std::vector<uint64_t> numbers = got.tensor.ToVector<uint64_t>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto want = LoadScalar(expected.bytes().data() + i * sizeof(uint64_t), kUInt64).bits;
    if (numbers[i] == want) continue;
    return absl::StrCat("element ", i, " is ", ShowName(StringOf(numbers[i])), ", expected ",
                        ShowName(StringOf(want)));
  }
  return "";
}

std::string Difference(const Value& got, const TensorData& expected, double tolerance) {
  const std::string difference = Difference(got.tensor, expected, tolerance);
  const bool same = ElementOf(got) == expected.element;
  if (same && IsStrings(got) && !difference.empty() && Sizes(got.tensor) == expected.dims) {
    return StringsDifference(got, expected);
  }
  if (!difference.empty() || same) return difference;
  return absl::StrCat("is of ", ElementName(ElementOf(got)), ", expected ",
                      ElementName(expected.element));
}
std::string Difference(const Value& got, const ValueData& expected, double tolerance) {
  const size_t n = expected.tensors.size();
  if (!expected.is_sequence) {
    if (n == 0) return got.empty() ? "" : "is there, expected nothing";
    return got.tensor ? Difference(got, expected.tensors[0], tolerance) : "is no tensor";
  }
  if (!got.is_sequence() || got.sequence->size() != n) {
    return absl::StrCat("is no sequence of ", n, " tensors");
  }
  for (size_t i = 0; i < n; ++i) {
    const Value& v = (*got.sequence)[i];
    const std::string difference =
        v.tensor ? Difference(v, expected.tensors[i], tolerance) : "is no tensor";
    if (!difference.empty()) return absl::StrCat("tensor ", i, " ", difference);
  }
  return "";
}

RunOutcome RunOnce(Importer& importer, const DataSet& set, const Placing& placing,
                   double tolerance) {
  const Model& model = importer.model();
  const std::set<std::string> host = HostInputs(model);
  const std::vector<ValueInfo> names = GivenInputs(model.graphs[0]);
  RunOutcome out;
  if (set.inputs.size() > names.size()) {
    out.fault = absl::StrCat(set.inputs.size(), " inputs for ", names.size(), " names");
    return out;
  }
  absl::flat_hash_map<std::string, Value> inputs;
  std::vector<Tensor> data;
  for (size_t i = 0; i < set.inputs.size(); ++i) {
    const bool known = host.contains(names[i].name);
    const Device device = known || placing.axis ? Device("CPU") : placing.data;
    Value& v = inputs[names[i].name] = MakeValue(set.inputs[i], device, known);
    if (v.tensor && !known) data.push_back(v.tensor = Placed(v.tensor, placing));
  }
  const std::vector<Value> outputs = importer.Run(inputs);
  out.random = importer.draws() > 0;
  std::vector<Tensor> results;
  for (const Value& v : outputs) {
    if (v.tensor) results.push_back(v.tensor);
    for (size_t i = 0; v.is_sequence() && i < v.sequence->size(); ++i) {
      results.push_back((*v.sequence)[i].tensor);
    }
  }
  if (placing.axis) {
    std::vector<UOp> roots;
    for (const Tensor& t : results) roots.push_back(t.uop());
    out.moved = BytesMoved(ValueOrThrow(PlanOnly(roots, MakePlanKey(roots))));
    out.whole = std::none_of(results.begin(), results.end(), IsSharded);
    out.fault = PlacementFault(model, data, results, out.moved);
    if (!out.fault.empty()) return out;
  }
  Tensor::Realize(absl::MakeSpan(results));
  // Of random values only the type and shape can be compared.
  const double most = out.random ? INFINITY : tolerance;
  for (size_t i = 0; i < set.outputs.size(); ++i) {
    const std::string difference =
        i < outputs.size() ? Difference(outputs[i], set.outputs[i], most) : "is missing";
    if (difference.empty()) continue;
    const absl::string_view name =
        i < outputs.size() ? model.graphs[0].outputs[i].name : absl::string_view();
    out.fault = absl::StrCat("output ", i, " ('", name, "'): ", difference);
    return out;
  }
  return out;
}

std::vector<Placing> ShardedPlacings(const DataSet& set, int places) {
  size_t rank = 0;
  for (const ValueData& v : set.inputs) {
    for (const TensorData& t : v.tensors) rank = std::max(rank, t.dims.size());
  }
  std::vector<Place> line;
  for (int i = 0; i < places; ++i) line.emplace_back("CPU", i);
  std::vector<Placing> out;
  for (size_t axis = 0; axis < rank; ++axis) {
    for (const bool uneven : {false, true}) {
      Placing p;
      p.name = absl::StrCat("sharded on axis ", axis, uneven ? ", uneven: " : ": ");
      p.places = line;
      p.data = Sharding(PlaceList(line));
      p.axis = static_cast<int>(axis);
      p.uneven = uneven;
      out.push_back(std::move(p));
    }
  }
  return out;
}

// Fills the result; errors of the run are thrown.
void RunDataSet(Importer& importer, const DataSet& set, const CaseOptions& options,
                CaseResult& result) {
  Placing plain;
  plain.data = options.device;
  const RunOutcome outcome = RunOnce(importer, set, plain, options.tolerance);
  if (!outcome.fault.empty()) {
    result.kind = CaseResult::Kind::kFail;
    result.why = outcome.fault;
    return;
  }
  std::vector<std::string> moved;
  if (options.shard > 1) {
    for (const Placing& placing : ShardedPlacings(set, options.shard)) {
      RunOutcome sharded;
      try {
        Importer spread(importer.model(), placing.data);
        sharded = RunOnce(spread, set, placing, options.tolerance);
      } catch (const Error& e) {
        sharded.fault = e.what();
      }
      if (!sharded.fault.empty()) {
        result.kind = CaseResult::Kind::kFail;
        result.why = placing.name + sharded.fault;
        return;
      }
      moved.push_back(absl::StrCat(sharded.moved, sharded.whole ? "w" : ""));
    }
    result.moved = absl::StrJoin(moved, " ");
  }
  if (outcome.random) {
    result.kind = CaseResult::Kind::kSkip;
    result.why = "its values are random: only types and shapes were compared";
  }
}

// Where numbers of 16 bits are rounded after each step, the last bits depend on what the steps are.
double TwoUnits(DType t) { return t == kBFloat16 ? 0x1p-6 : t == kFloat16 ? 0x1p-9 : 0; }

}  // namespace

std::string Difference(const Tensor& got, const TensorData& expected, double tolerance) {
  const std::optional<DType> dtype = expected.dtype();
  if (!dtype)
    return absl::StrCat("expected ", ElementName(expected.element), ", which is no dtype");
  const std::vector<int64_t> shape = Sizes(got);
  if (got.dtype() != *dtype || shape != expected.dims) {
    return absl::StrCat("is ", got.dtype().ToString(), ShapeText(shape), ", expected ",
                        dtype->ToString(), ShapeText(expected.dims));
  }
  const auto size = static_cast<size_t>(dtype->bytes());
  const auto want = [&](size_t i) {
    return LoadScalar(expected.bytes().data() + i * size, *dtype);
  };
  const auto wrong = [&](size_t i, const std::string& value) {
    return absl::StrCat("element ", i, " of ", ShapeText(shape), " is ", value, ", expected ",
                        ScalarToString(want(i), *dtype));
  };
  if (std::isinf(tolerance)) return "";
  if (!dtype->IsFloat()) {
    const std::vector<uint64_t> values = got.ToVector<uint64_t>();  // bits of 64-bit integers
    for (size_t i = 0; i < values.size(); ++i) {
      const bool same =
          dtype->IsBool() ? (values[i] != 0) == (want(i).AsInt() != 0) : values[i] == want(i).bits;
      if (!same) return wrong(i, ScalarToString({values[i]}, *dtype));
    }
    return "";
  }
  // What a sum cancels to is as exact as its largest terms, so a little of the largest value
  // counts.
  double largest = 1;
  const int64_t count = got.elements();
  for (int64_t i = 0; i < count; ++i) {
    const double b = std::abs(want(i).AsFloat());
    if (std::isfinite(b)) largest = std::max(largest, b);
  }
  const double least = std::min(1e-7, tolerance) * largest;
  tolerance = std::max(tolerance, TwoUnits(*dtype));
  const std::vector<double> values = got.ToVector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double a = values[i], b = want(i).AsFloat();
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!(std::abs(a - b) <= least + tolerance * std::abs(b)) || std::isinf(b)) {
      return wrong(i, absl::StrFormat("%.9g", a));
    }
  }
  return "";
}

CaseResult RunCase(const std::string& folder, const CaseOptions& options) {
  CaseResult result;
  const auto end = [&](CaseResult::Kind kind, absl::string_view why) {
    result.kind = kind;
    result.why = std::string(why);
    return result;
  };
  const absl::StatusOr<File> file = MappedFile::Open(folder + "/model.onnx");
  if (!file.ok()) return end(CaseResult::Kind::kFail, file.status().message());
  absl::StatusOr<Model> model = ParseModel((*file)->bytes(), (*file)->path());
  if (!model.ok()) return end(CaseResult::Kind::kFail, model.status().message());
  const auto others = ReadOtherFiles(*model, folder);
  if (!others.ok()) return end(CaseResult::Kind::kFail, others.status().message());
  const Plainness plainness = PlainnessOf(*model);
  result.plain = plainness.reason.empty();
  if (!plainness.may_run) return end(CaseResult::Kind::kSkip, plainness.reason);
  try {
    Importer importer(*model, options.device);
    int sets = 0;
    while (result.kind != CaseResult::Kind::kFail) {
      const std::string data = absl::StrCat(folder, "/test_data_set_", sets);
      if (!fs::exists(data)) break;
      RunDataSet(importer, ValueOrThrow(ReadDataSet(data, model->graphs[0])), options, result);
      ++sets;
    }
    if (sets == 0) return end(CaseResult::Kind::kSkip, "there is no test_data_set_0");
  } catch (const Error& e) {
    const bool unsupported = e.status().code() == absl::StatusCode::kUnimplemented;
    return end(unsupported ? CaseResult::Kind::kSkip : CaseResult::Kind::kFail, e.what());
  }
  return result;
}

std::string WhyNotPlain(const std::string& folder) {
  const absl::StatusOr<File> file = MappedFile::Open(folder + "/model.onnx");
  if (!file.ok()) return std::string(file.status().message());
  const absl::StatusOr<Model> model = ParseModel((*file)->bytes(), (*file)->path());
  return model.ok() ? PlainnessOf(*model).reason : std::string(model.status().message());
}

std::vector<std::string> CaseFolders(const std::string& path) {
  std::error_code error;
  if (fs::exists(path + "/model.onnx", error)) return {path};
  std::vector<std::string> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (fs::exists(entry.path() / "model.onnx", error)) out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tessera::onnx
