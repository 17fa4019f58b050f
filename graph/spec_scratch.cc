// The rules on scratch: who fills and who reads it, in kernels and in programs.
#include <deque>
#include <utility>

#include "absl/algorithm/container.h"
#include "graph/infer.h"
#include "graph/spec_graph.h"

namespace tessera {
namespace {

// In kernels a SCRATCH is filled by the STOREs of its STAGEs, and read as a STAGE.
class KernelScratch {
 public:
  explicit KernelScratch(SpecGraph& g) : g_(g) {}

  void Check() {
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
      const SpecNode& n = g_.nodes[i];
      if (n.bad) continue;
      if (n.op == Op::kStage) Stage(i);
      for (int k = 0; k < n.num_srcs; ++k) {
        const Op pointer = PointerOp(g_.srcs(i)[k]);
        const bool target = k == 0 && (n.op == Op::kStore || n.op == Op::kUpdate);
        if (pointer == Op::kScratch && !target) {
          g_.Report(SpecRule::kStageForm, i, Info(n.op).text,
                    ": reads a SCRATCH itself; a STAGE of it is read");
        } else if (pointer == Op::kStage && target) {
          g_.Report(SpecRule::kStageForm, i, Info(n.op).text, ": fills a STAGE that is filled");
        }
      }
      if (n.op != Op::kSink) continue;
      for (int s : g_.srcs(i)) {
        if (g_.nodes[s].bad || g_.nodes[s].num_srcs == 0) continue;
        if (PointerOp(g_.srcs(s)[0]) != Op::kScratch) continue;
        g_.Report(SpecRule::kStageForm, s, Info(g_.nodes[s].op).text,
                  ": fills a SCRATCH outside of its STAGE");
      }
    }
  }

 private:
  // The op of the pointer of an INDEX; CONST of any other node.
  Op PointerOp(int i) const {
    const SpecNode& n = g_.nodes[i];
    return n.op == Op::kIndex && n.num_srcs > 0 ? g_.src(i, 0).op : Op::kConst;
  }

  void Stage(int i) {
    const StageArg& arg = std::get<StageArg>(g_.nodes[i].arg->value);
    if (arg.id < 0 || arg.ahead < 0) {
      g_.Report(SpecRule::kStageForm, i, "STAGE: its id is ", arg.id, ", and it is filled ",
                arg.ahead, " steps ahead");
    }
    const auto srcs = g_.srcs(i);
    for (size_t k = 1; k < srcs.size(); ++k) {
      const SpecNode& store = g_.nodes[srcs[k]];
      if (store.op != Op::kStore || store.bad || store.num_srcs == 0) continue;
      const int index = g_.srcs(srcs[k])[0];
      if (PointerOp(index) == Op::kConst || g_.srcs(index)[0] == srcs[0]) continue;
      g_.Report(SpecRule::kStageForm, i, "STAGE: is filled by ", g_.NodeText(srcs[k]),
                ", which stores elsewhere");
    }
  }

  SpecGraph& g_;
};

// In programs what is read of a SCRATCH has been put there, and has arrived.
class ProgramScratch {
 public:
  ProgramScratch(SpecGraph& g, int program) : g_(g) {
    for (const SpecNode& n : g.nodes) {
      if (n.op != Op::kVar || !n.sure()) continue;
      const std::string& name = std::get<VarArg>(n.arg->value).name;
      threads_ |= name == "rt_thread" || name == "rt_row";
    }
    for (int s : g.srcs(program)) Statement(s);
  }

 private:
  struct Bytes {
    int64_t begin = 0, end = 0;
    int filled_by = -1;     // the SCRATCH that was last put to, of those that share bytes with it
    bool arrived = false;   // something that was put to it, or fetched and waited for
    bool met = false;       // and a BARRIER since
    std::vector<int> at{};  // offsets to which a thread itself has put
    bool Shares(const Bytes& other) const { return begin < other.end && other.begin < end; }
  };

  Bytes* Find(int i) {
    if (!g_.nodes[i].sure() || g_.nodes[i].op != Op::kScratch) return nullptr;
    const auto [it, added] = scratches_.emplace(i, Bytes());
    if (added) {
      const auto& [offset, size] = g_.nodes[i].value.arg<Pairs>()[0];
      it->second = {offset.value(), offset.value() + size.value()};
      const int bytes = std::max(1, g_.nodes[i].dtype.bytes());
      if (offset.value() % bytes != 0) {
        g_.Report(SpecRule::kScratchForm, i, "SCRATCH: ", offset.value(), " is no multiple of ",
                  bytes, " bytes");
      }
      const Target& target = g_.options.target;
      if (target.dialect == Dialect::kCuda && it->second.end > target.shared_bytes) {
        g_.Report(SpecRule::kLaunchLimits, i, it->second.end,
                  " bytes of scratch; a block of the target has ", target.shared_bytes);
      }
    }
    return &it->second;
  }

  void Statement(int i) {
    const SpecNode& n = g_.nodes[i];
    if (n.bad) return;
    if (n.op == Op::kCommit) return groups_.push_back(std::exchange(fetched_, {}));
    if (n.op == Op::kWait && n.num_srcs == 0) return Wait(std::get<Ints>(n.arg->value)[1]);
    if (n.op == Op::kBarrier) {
      for (auto& [scratch, bytes] : scratches_) bytes.met |= bytes.arrived;
      return;
    }
    if (n.num_srcs == 0) return void(Find(i));
    const int pointer = g_.srcs(i)[0];
    if (IsPut(n.op) || n.op == Op::kFetch) {
      Fill(i, pointer);
    } else if (n.op == Op::kLoad || n.op == Op::kFragment) {
      Read(i, pointer);
    }
  }

  void Fill(int i, int pointer) {
    Bytes* filled = Find(pointer);
    if (filled == nullptr) return;
    for (auto& [other, bytes] : scratches_) {
      if (!bytes.Shares(*filled) || bytes.filled_by == pointer) continue;
      bytes.filled_by = pointer;
      bytes.arrived = bytes.met = false;
      bytes.at.clear();
    }
    order_.push_back(pointer);
    if (g_.nodes[i].op == Op::kFetch) {
      fetched_.push_back(pointer);
    } else {
      filled->arrived = true;
      filled->at.push_back(g_.srcs(i)[1]);
    }
  }

  void Wait(int64_t left) {
    while (static_cast<int64_t>(groups_.size()) > left) {
      for (int s : groups_.front()) scratches_.at(s).arrived |= scratches_.at(s).filled_by == s;
      groups_.pop_front();
    }
  }

  void Read(int i, int pointer) {
    const bool first = !scratches_.contains(pointer);
    Bytes* read = Find(pointer);
    if (read == nullptr || read->begin == read->end) return;
    if (first) {  // what was put before it was met may share its bytes
      for (int s : order_) {
        if (scratches_.at(s).Shares(*read)) read->filled_by = s;
      }
    }
    const auto fail = [&](const std::string& why) {
      g_.Report(SpecRule::kScratchOrder, i, Info(g_.nodes[i].op).text, ": reads ",
                g_.NodeText(pointer), ", ", why);
      read->filled_by = pointer;  // once is enough
      read->arrived = read->met = true;
    };
    if (read->filled_by < 0) return fail("to which nothing was put before");
    if (read->filled_by != pointer) {
      return fail(absl::StrCat("to which nothing was put since ", g_.NodeText(read->filled_by),
                               ", which shares its bytes"));
    }
    if (!read->arrived) return fail("and no WAIT stands between that and what fetches it");
    // Each thread sees what it has put there itself.
    if (threads_ && !read->met && !absl::c_linear_search(read->at, g_.srcs(i)[1])) {
      fail("and no BARRIER stands between that and what puts it there");
    }
  }

  SpecGraph& g_;
  bool threads_ = false;  // that share the SCRATCHes
  absl::flat_hash_map<int, Bytes> scratches_;
  std::vector<int> order_;               // those that were put to
  std::vector<int> fetched_;             // since the last COMMIT
  std::deque<std::vector<int>> groups_;  // fetched and not yet waited for
};

}  // namespace

void CheckScratch(SpecGraph& g) {
  if (g.stage == SpecStage::kKernel) return KernelScratch(g).Check();
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    if (g.nodes[i].op == Op::kProgram) ProgramScratch(g, i);
  }
}

}  // namespace tessera
