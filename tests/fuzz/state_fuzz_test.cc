// Random programs over tensors that are written: assignments to wholes and views, expressions that
// captured old versions, realising in any order, handles dropped. Against a model that does at once
// what the program says.
#include <chrono>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "graph/flags.h"
#include "graph/tensor.h"
#include "tests/testing.h"

namespace tessera {
namespace {

using Values = std::vector<int32_t>;

// What a handle means: the value that it captured, and where it came from if it is a view.
struct Model {
  std::shared_ptr<Values> cell;  // the tensor itself, or what this is a view of
  bool is_view = false;
  Values captured;                            // of a view
  std::vector<int> place;                     // of each element of a view in the cell
  std::vector<std::weak_ptr<Model>> through;  // the views that a view was made through
  const Values& value() const { return is_view ? captured : *cell; }
  void Renew() {
    for (size_t k = 0; k < place.size(); ++k) captured[k] = (*cell)[place[k]];
  }
};

struct Handle {
  Tensor tensor;
  std::shared_ptr<Model> model;  // one for all handles to a tensor
};

struct Instruction {
  enum Kind : uint8_t {
    kNew,
    kCopy,
    kAffine,
    kAdd,
    kSumOf,
    kView,
    kAssignNumber,
    kAssign,
    kAssignSelf,
    kRealize,
    kRead,
    kDrop,
    kCount,
  } kind;
  unsigned a, b, c;
};

const char* const kNames[] = {"new",           "copy",   "affine",      "add",     "sum",  "view",
                              "assign_number", "assign", "assign_self", "realize", "read", "drop"};

std::string ToString(const std::vector<Instruction>& program) {
  std::string out;
  for (const Instruction& i : program) {
    absl::StrAppend(&out, kNames[i.kind], " ", i.a, " ", i.b, " ", i.c, "\n");
  }
  return out;
}

std::vector<int64_t> DimsOf(const Tensor& t) {
  std::vector<int64_t> out;
  for (const Extent& e : t.shape()) out.push_back(e.value());
  return out;
}

int32_t Wrap(int64_t v) { return static_cast<int32_t>(static_cast<uint64_t>(v)); }

class Machine {
 public:
  // "" or the first disagreement.
  std::string Run(const std::vector<Instruction>& program) {
    for (size_t i = 0; i < program.size(); ++i) {
      std::string wrong;
      try {
        wrong = Step(program[i]);
      } catch (const Error& e) {
        wrong = e.what();
      }
      if (!wrong.empty()) return absl::StrCat("instruction ", i, ": ", wrong);
    }
    for (const Handle& h : handles_) {
      if (const std::string wrong = Check(h); !wrong.empty()) return "at the end: " + wrong;
    }
    return "";
  }

 private:
  Handle& At(unsigned i) { return handles_[i % handles_.size()]; }

  static std::string Check(const Handle& h) {
    const Values got = h.tensor.ToVector<int32_t>();
    if (got == h.model->value()) return "";
    return absl::StrCat("read ", testing::PrintToString(got), ", not ",
                        testing::PrintToString(h.model->value()));
  }

  void Add(Tensor t, Values values) {
    auto m = std::make_shared<Model>();
    m->cell = std::make_shared<Values>(std::move(values));
    handles_.push_back({std::move(t), std::move(m)});
  }

  std::string Step(const Instruction& i) {
    if (i.kind != Instruction::kNew && handles_.empty()) return "";
    switch (i.kind) {
      case Instruction::kNew:
        New(i);
        return "";
      case Instruction::kCopy:
        handles_.push_back(Handle(At(i.a)));
        return "";
      case Instruction::kAffine:
      case Instruction::kAdd:
      case Instruction::kSumOf: {
        const auto [t, v] = Expression(i.kind, At(i.a), At(i.b), i.c);
        Add(t, v);
        return "";
      }
      case Instruction::kView:
        View(At(i.a), i.b, i.c);
        return "";
      case Instruction::kAssignNumber: {
        Handle& h = At(i.a);
        const int n = static_cast<int>(i.c % 50);
        h.tensor.Assign(n);
        Write(h, Values(h.model->value().size(), n));
        return "";
      }
      case Instruction::kAssign: {
        Handle &h = At(i.a), &from = At(i.b);
        if (!(h.tensor.shape() == from.tensor.shape())) return "";
        const Values v = from.model->value();
        h.tensor.Assign(from.tensor);
        Write(h, v);
        return "";
      }
      case Instruction::kAssignSelf: {
        Handle& h = At(i.a);
        const auto kind = static_cast<Instruction::Kind>(Instruction::kAffine + i.b % 3);
        const auto [t, v] = Expression(kind, h, At(i.b), i.c);
        if (!(t.shape() == h.tensor.shape())) return "";
        h.tensor.Assign(t);
        Write(h, v);
        return "";
      }
      case Instruction::kRealize: {
        std::vector<Tensor> some = {At(i.a).tensor};
        if (i.c % 2) some.push_back(At(i.b).tensor);
        if (i.c % 5 == 0) some.push_back(At(i.c).tensor);
        Tensor::Realize(absl::MakeSpan(some));
        return "";
      }
      case Instruction::kRead:
        return Check(At(i.a));
      case Instruction::kDrop:
        handles_.erase(handles_.begin() + i.a % handles_.size());
        return "";
      case Instruction::kCount:
        break;
    }
    return "";
  }

  void New(const Instruction& i) {
    const std::vector<std::vector<int64_t>> shapes = {{4}, {2, 3}, {3, 2}, {6}, {1}, {2, 2}};
    const std::vector<int64_t>& shape = shapes[i.a % shapes.size()];
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    Values v(n);
    for (int64_t k = 0; k < n; ++k) v[k] = static_cast<int32_t>(i.b % 7 * k + i.c % 10);
    if (i.b % 4 == 0) {
      blobs_.push_back(std::make_unique<Values>(v));
      Add(Tensor::FromBlob(blobs_.back()->data(), shape, kInt32), v);
    } else {
      Add(Tensor::From(v, shape), v);
    }
  }

  std::pair<Tensor, Values> Expression(Instruction::Kind kind, const Handle& a, const Handle& b,
                                       unsigned c) {
    Values v = a.model->value();
    if (kind == Instruction::kAdd && b.tensor.shape() == a.tensor.shape()) {
      const Values& w = b.model->value();
      for (size_t k = 0; k < v.size(); ++k) v[k] = Wrap(int64_t{v[k]} + w[k]);
      return {a.tensor + b.tensor, v};
    }
    if (kind == Instruction::kSumOf) {
      int64_t sum = 0;
      for (int32_t x : b.model->value()) sum += x;
      for (int32_t& x : v) x = Wrap(x + sum);
      return {a.tensor + b.tensor.Sum(), v};
    }
    const int n = static_cast<int>(c % 5);
    if (c % 3 == 0) {  // reversed along axis 0 as well
      const Values w = v;
      const size_t rows = a.tensor.size(0), row = v.size() / rows;
      for (size_t k = 0; k < v.size(); ++k) {
        v[k] = Wrap(int64_t{w[k]} * n + w[(rows - 1 - k / row) * row + k % row]);
      }
      return {a.tensor * n + a.tensor.Flip(0), v};
    }
    for (int32_t& x : v) x = Wrap(int64_t{x} * n + 1);
    return {a.tensor * n + 1, v};
  }

  // The view's model is found by moving the numbers of the elements along.
  void View(Handle& from, unsigned how, unsigned c) {
    const Tensor& t = from.tensor;
    const auto n = static_cast<int64_t>(from.model->value().size());
    Tensor numbers = Tensor::From(Numbers(n), DimsOf(t));
    const int axis = static_cast<int>(c % t.rank());
    const int64_t extent = t.size(axis);
    const auto move = [&](const Tensor& x) {
      switch (how % 6) {
        case 0:
          return x.Flip(axis);
        case 1:
          return x.T();
        case 2:
          return x.Flatten();
        case 3:
          return x.SliceAxis(axis, {c % extent, extent});
        case 4:
          return x.SliceAxis(axis, {{}, {}, c % 2 ? 2 : -2});
        default:
          return x.Reshape(std::vector<int64_t>{n, 1});
      }
    };
    const Model& of = *from.model;
    auto m = std::make_shared<Model>();
    m->cell = of.cell;
    m->is_view = true;
    for (int32_t k : move(numbers).ToVector<int32_t>()) {
      m->captured.push_back(of.value()[k]);
      m->place.push_back(of.is_view ? of.place[k] : k);
    }
    m->through = of.through;
    if (of.is_view) m->through.push_back(from.model);
    handles_.push_back({move(t), std::move(m)});
  }

  static Values Numbers(int64_t n) {
    Values v(n);
    for (int64_t i = 0; i < n; ++i) v[i] = static_cast<int32_t>(i);
    return v;
  }

  static void Write(Handle& h, const Values& v) {
    Model& m = *h.model;
    if (!m.is_view) {
      *m.cell = v;
      return;
    }
    for (size_t k = 0; k < v.size(); ++k) (*m.cell)[m.place[k]] = v[k];
    m.Renew();
    for (const auto& other : m.through) {
      if (const auto view = other.lock()) view->Renew();
    }
  }

  std::vector<std::unique_ptr<Values>> blobs_;  // outlive the tensors
  std::vector<Handle> handles_;
};

std::vector<Instruction> RandomProgram(uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<Instruction> out;
  const int length = 4 + static_cast<int>(rng() % 20);
  for (int i = 0; i < length; ++i) {
    Instruction::Kind kind = static_cast<Instruction::Kind>(rng() % Instruction::kCount);
    if (i < 2) kind = Instruction::kNew;
    if (rng() % 5 == 0) kind = Instruction::kAssign;
    if (rng() % 6 == 0) kind = Instruction::kView;
    out.push_back({kind, static_cast<unsigned>(rng() % 64), static_cast<unsigned>(rng() % 64),
                   static_cast<unsigned>(rng() % 64)});
  }
  return out;
}

std::string Try(const std::vector<Instruction>& program) { return Machine().Run(program); }

void Fuzz(uint64_t first, int64_t count) {
  if (IntFlag(Flag::kFuzzSeed) >= 0) {
    first = IntFlag(Flag::kFuzzSeed);
    count = 1;
  }
  if (IntFlag(Flag::kFuzzGraphs) > 0) count = IntFlag(Flag::kFuzzGraphs);
  int failures = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count) && failures < 5; ++seed) {
    std::vector<Instruction> program = RandomProgram(seed);
    if (Try(program).empty()) continue;
    ++failures;
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < program.size(); ++i) {
        std::vector<Instruction> less;
        for (size_t j = 0; j < program.size(); ++j) {
          if (j != i) less.push_back(program[j]);
        }
        if (Try(less).empty()) continue;
        program = less;
        again = true;
        break;
      }
    }
    ADD_FAILURE() << "FUZZ_SEED=" << seed << "\n" << ToString(program) << Try(program);
  }
}

TEST(StateFuzz, Few) { Fuzz(1, 300); }
TEST(StateFuzz, ManySlow) { Fuzz(10000, 2000); }
TEST(StateFuzz, FreshSeedsLong) { Fuzz(uint64_t{std::random_device()()} << 16, 100000); }

}  // namespace
}  // namespace tessera
