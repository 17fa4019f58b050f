// The ops of ai.onnx.ml that prepare features and are linear; trees are in ops_tree.cc.
#include <algorithm>
#include <cmath>

#include "examples/onnx/import.h"
#include "examples/onnx/learning.h"
#include "examples/onnx/strings.h"

namespace tessera::onnx {

Tensor PostTransformed(Call& c, const Tensor& scores, absl::string_view transform) {
  if (transform == "NONE") return scores;
  if (transform == "SOFTMAX") return scores.Softmax(-1);
  if (transform == "LOGISTIC") return scores.Sigmoid();
  if (transform == "PROBIT") return (scores * 2 - 1).ErfInv() * std::sqrt(2.0);
  if (transform == "SOFTMAX_ZERO") {  // zeros stay, and count for nothing
    const Tensor some = scores != 0;
    const Tensor shares = Where(some, scores, -INFINITY).Softmax(-1);
    return Where(some.Any(-1, /*keepdim=*/true) & some, shares, 0);
  }
  c.Fail("post_transform is '", transform, "'; NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO and PROBIT ",
         "are known");
}

Tensor Rows(Call& c, const Tensor& x) {
  if (x.rank() < 1 || x.rank() > 2) c.Fail("the input has shape ", x.shape().ToString());
  return x.rank() == 1 ? x.Unsqueeze(0) : x;
}

namespace {

Tensor FloatsAsTensor(Call& c, const char* name) {
  const std::vector<double> values = c.Floats(name);
  return Tensor::From(values, {static_cast<int64_t>(values.size())}, "CPU").Cast(kFloat32);
}

// What is known, where the data of the op lies.
Tensor Beside(Call& c, const Tensor& known) {
  return c.all_known() ? known : c.importer().Placed(known);
}

void ArrayFeatureExtractor(Call& c) {
  const Tensor x = c.In(0), at = c.In(1).Flatten().Cast(kInt64);
  if (x.rank() == 0) c.Fail("the input has no axis");
  const Tensor y = x.Take(at, -1);
  c.Out(x.rank() == 1 ? y.Unsqueeze(0) : y);
}

void Binarizer(Call& c) {
  const Tensor x = c.In(0);
  c.Out((x > c.Float("threshold", 0)).Cast(x.dtype()));
}

// The values of an attribute: one for each feature, or one for all.
Tensor PerFeature(Call& c, const char* name, const Tensor& values, const Tensor& x) {
  if (values.size(0) != 1 && values.size(0) != x.size(-1)) {
    c.Fail("attribute '", name, "' has ", values.size(0), " entries for ", x.size(-1), " features");
  }
  return Beside(c, values);
}
void Scaler(Call& c) {
  const Tensor x = c.In(0).Cast(kFloat32);
  if (x.rank() == 0) c.Fail("the input has no axis");
  const auto given = [&](const char* name, double other) {
    if (c.Find(name) == nullptr) return Tensor::Full({1}, other, kFloat32);
    return PerFeature(c, name, FloatsAsTensor(c, name), x);
  };
  c.Out((x - given("offset", 0)) * given("scale", 1));
}

void Normalizer(Call& c) {
  const std::string norm = c.Choice("norm", {"MAX", "L1", "L2"});
  const Tensor x = Rows(c, c.In(0).Cast(kFloat32));
  const Tensor size = norm == "MAX"  ? x.Abs().Max(-1, true)
                      : norm == "L1" ? x.Abs().Sum(-1, true)
                                     : x.Norm(2, -1, true);
  c.Out(Where(size == 0, x, x / size).Reshape(c.Input(0).tensor.shape().ToExtents()));
}

void Imputer(Call& c) {
  const Tensor x = c.In(0);
  const bool real = x.dtype().IsFloat();
  const char* const name = real ? "imputed_value_floats" : "imputed_value_int64s";
  const std::vector<int64_t> ints = c.Ints("imputed_value_int64s");
  const Tensor values = real ? FloatsAsTensor(c, name)
                             : Tensor::From(ints, {static_cast<int64_t>(ints.size())}, "CPU");
  const double replaced = c.Float("replaced_value_float", 0);
  const Tensor gone = !real                  ? x == c.Int("replaced_value_int64", 0)
                      : std::isnan(replaced) ? x.IsNan()
                                             : x == replaced;
  c.Out(Where(gone, PerFeature(c, name, values.Cast(x.dtype()), x), x));
}

void FeatureVectorizer(Call& c) {
  const std::vector<int64_t> sizes = c.Ints("inputdimensions");
  if (sizes.size() != static_cast<size_t>(c.inputs())) {
    c.Fail("inputdimensions has ", sizes.size(), " entries for ", c.inputs(), " inputs");
  }
  std::vector<Tensor> parts;
  for (int i = 0; i < c.inputs(); ++i) {
    const Tensor x = Rows(c, c.In(i).Cast(kFloat32));
    const int64_t size = sizes[static_cast<size_t>(i)];
    if (size < 0 || size > x.size(1)) {
      c.Fail("input ", i, " has ", x.size(1), " features of ", size);
    }
    parts.push_back(x.SliceAxis(1, {0, size}));
  }
  c.Out(Cat(parts, 1));
}

void LinearRegressor(Call& c) {
  const int64_t targets = c.Int("targets", 1);
  const Tensor x = Rows(c, c.In(0).Cast(kFloat32)), weights = FloatsAsTensor(c, "coefficients");
  if (targets < 1 || weights.size(0) != targets * x.size(1)) {
    c.Fail("coefficients has ", weights.size(0), " entries for ", targets, " targets of ",
           x.size(1), " features");
  }
  Tensor y = x.MatMul(Beside(c, weights.Reshape({targets, x.size(1)})).T());
  if (c.Find("intercepts") != nullptr) {
    const Tensor intercepts = FloatsAsTensor(c, "intercepts");
    if (intercepts.size(0) != targets) {
      c.Fail("intercepts has ", intercepts.size(0), " entries for ", targets, " targets");
    }
    y = y + Beside(c, intercepts);
  }
  c.Out(PostTransformed(c, y, c.String("post_transform", "NONE")));
}

// ---- by keys

// A list that is an attribute: a tensor, or strings, integers or floats.
struct Listed {
  Tensor values;  // [n], on the host; none: no such attribute
  int64_t element = 0;
};
Listed ListOf(Call& c, const std::string& what) {
  const auto n = [](const auto& list) {
    return std::vector<int64_t>{static_cast<int64_t>(list.size())};
  };
  if (c.Find(what + "_tensor") != nullptr) {
    const Value v = MakeValue(c.TensorOf(what + "_tensor"), "CPU", true);
    return {v.tensor.Flatten(), v.element};
  }
  if (c.Find(what + "_strings") != nullptr) {
    const std::vector<std::string> texts = c.Strings(what + "_strings");
    return {StringTensor(texts, n(texts)), kElementString};
  }
  if (c.Find(what + "_int64s") != nullptr) {
    const std::vector<int64_t> ints = c.Ints(what + "_int64s");
    return {Tensor::From(ints, n(ints), "CPU")};
  }
  if (c.Find(what + "_floats") == nullptr) return {};
  return {FloatsAsTensor(c, (what + "_floats").c_str())};
}

// For each element of an input its value where its key is, else the other one.
void Mapped(Call& c, const Listed& keys, const Listed& values, const Tensor& other) {
  const Value& in = c.Input(0);
  if (!keys.values || !values.values) c.Fail("wants keys and values");
  if (in.element != keys.element || in.tensor.dtype() != keys.values.dtype()) {
    c.Fail("the input is ", ElementName(ElementOf(in)), ", its keys are ",
           ElementName(keys.element != 0 ? keys.element : ElementOfDType(keys.values.dtype())));
  }
  const int64_t n = keys.values.size(0);
  if (values.values.size(0) != n) c.Fail(n, " keys for ", values.values.size(0), " values");
  const Tensor x = c.In(0).Unsqueeze(-1), given = Beside(c, keys.values);
  Tensor same = x == given;
  if (x.dtype().IsFloat()) same = same | (x.IsNan() & given.IsNan());
  Tensor y = Tensor::Zeros(c.Input(0).tensor.shape().ToExtents(), values.values.dtype());
  if (n > 0) y = Beside(c, values.values).Take(same.Cast(kInt32).ArgMax(-1));
  c.OutOf(Where(n > 0 ? same.Any(-1) : Tensor::Full({}, false), y, Beside(c, other)),
          values.element);
}

// The one element that stands for keys that are not there.
Tensor OtherOf(Call& c, const Listed& values) {
  if (c.Find("default_tensor") != nullptr) {
    const Value other = MakeValue(c.TensorOf("default_tensor"), "CPU", true);
    if (values.values) {
      const int64_t is = ElementOf(other), want = ElementOf({values.values, true, values.element});
      if (is != want) {
        c.Fail("default_tensor is ", ElementName(is), ", the values are ", ElementName(want));
      }
    }
    const Tensor flat = other.tensor.Flatten();
    if (flat.size(0) != 1) c.Fail("default_tensor has ", flat.size(0), " elements");
    return flat.Select(0, 0);
  }
  if (values.element == kElementString) {
    return StringTensor({c.String("default_string", "_Unused")}, {});
  }
  const DType type = values.values ? values.values.dtype() : kInt64;
  if (type.IsFloat()) return Tensor::Full({}, c.Float("default_float", -0.0), type, "CPU");
  return Tensor::Full({}, c.Int("default_int64", -1), type, "CPU");
}

void LabelEncoder(Call& c) {
  if (c.Find("classes_strings") == nullptr) {
    const Listed values = ListOf(c, "values");
    return Mapped(c, ListOf(c, "keys"), values, OtherOf(c, values));
  }
  // Of version 1: strings to their positions, or back.
  const Listed classes = ListOf(c, "classes");
  const Listed at = {Tensor::Arange(classes.values.size(0), kInt64).To("CPU")};
  const bool back = !IsStrings(c.Input(0));
  const Listed &keys = back ? at : classes, &values = back ? classes : at;
  Mapped(c, keys, values, OtherOf(c, values));
}

void CategoryMapper(Call& c) {
  const std::vector<std::string> names = c.Strings("cats_strings");
  const std::vector<int64_t> numbers = c.Ints("cats_int64s");
  const std::vector<int64_t> shape = {static_cast<int64_t>(numbers.size())};
  if (names.size() != numbers.size()) c.Fail(names.size(), " names for ", numbers.size());
  const Listed texts = {StringTensor(names, shape), kElementString},
               ints = {Tensor::From(numbers, shape, "CPU")};
  const bool back = !IsStrings(c.Input(0));
  const Listed &keys = back ? ints : texts, &values = back ? texts : ints;
  Mapped(c, keys, values, OtherOf(c, values));
}

void OneHotEncoder(Call& c) {
  const Listed categories = ListOf(c, "cats");
  if (!categories.values) c.Fail("wants cats_int64s or cats_strings");
  const bool all_there = c.Int("zeros", 1) == 0;
  const Tensor x = all_there ? c.Read(0) : c.In(0);
  if (IsStrings(c.Input(0)) != (categories.element == kElementString)) {
    c.Fail("the input is ", ElementName(ElementOf(c.Input(0))), ", the categories are not");
  }
  const Tensor given = Beside(c, categories.values);
  const Tensor same =
      (categories.element == kElementString ? x : x.Cast(kInt64)).Unsqueeze(-1) == given;
  if (all_there && !same.Any(-1).All().Item<bool>()) {
    c.Fail("an element is none of the categories, and zeros is 0");
  }
  c.Out(Value{same.Cast(kFloat32), c.all_known()});
}

constexpr OpRow kRows[] = {
    {"ai.onnx.ml.ArrayFeatureExtractor", ArrayFeatureExtractor},
    {"ai.onnx.ml.Binarizer", Binarizer, 0, Flow::kElementwise},
    {"ai.onnx.ml.CategoryMapper", CategoryMapper},
    {"ai.onnx.ml.FeatureVectorizer", FeatureVectorizer},
    {"ai.onnx.ml.Imputer", Imputer},
    {"ai.onnx.ml.LabelEncoder", LabelEncoder},
    {"ai.onnx.ml.LinearRegressor", LinearRegressor},
    {"ai.onnx.ml.Normalizer", Normalizer},
    {"ai.onnx.ml.OneHotEncoder", OneHotEncoder},
    {"ai.onnx.ml.Scaler", Scaler},
    {"ai.onnx.ml.TreeEnsemble", TreeEnsemble},
    {"ai.onnx.ml.TreeEnsembleRegressor", TreeEnsembleRegressor},
};

}  // namespace

absl::Span<const OpRow> LearningOps() { return kRows; }

}  // namespace tessera::onnx
