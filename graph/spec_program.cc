// The rules on programs: the order of statements, the nesting of loops and IFs, and the accesses.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "graph/panel.h"
#include "graph/spec_graph.h"

namespace tessera {
namespace {

constexpr int kUnlisted = -1;

// What runs where it is listed, so that it must be; the rest is computed where it is used if it is
// not listed.
bool HasPlace(Op op) {
  switch (op) {
#define OP(...)
#define EW(name, ...) case Op::k##name:
#include "graph/ops.def"
    return false;
    case Op::kRange:
    case Op::kIf:
    case Op::kEnd:
    case Op::kReg:
    case Op::kSet:
    case Op::kLoad:
    case Op::kPut:
    case Op::kStream:
    case Op::kPrefetch:
    case Op::kBarrier:
    case Op::kCombine:
    case Op::kFetch:
    case Op::kCommit:
    case Op::kWait:
    case Op::kFragment:
    case Op::kMma:
      return true;
    case Op::kConst:
    case Op::kVar:
    case Op::kIota:
    case Op::kBuffer:
    case Op::kParam:
    case Op::kReshape:
    case Op::kPermute:
    case Op::kExpand:
    case Op::kPad:
    case Op::kShrink:
    case Op::kFlip:
    case Op::kWindow:
    case Op::kReduce:
    case Op::kGather:
    case Op::kScatter:
    case Op::kCat:
    case Op::kCopy:
    case Op::kContiguous:
    case Op::kMark:
    case Op::kStandIn:
    case Op::kAllReduce:
    case Op::kMStack:
    case Op::kMSelect:
    case Op::kLocal:
    case Op::kGlobal:
    case Op::kPass:
    case Op::kExchange:
    case Op::kItem:
    case Op::kLoop:
    case Op::kResult:
    case Op::kRan:
    case Op::kAssign:
    case Op::kSink:
    case Op::kIndex:
    case Op::kStore:
    case Op::kUpdate:
    case Op::kRunning:
    case Op::kEarlier:
    case Op::kRescale:
    case Op::kStage:
    case Op::kProgram:
    case Op::kScratch:
    case Op::kSplat:
    case Op::kLanes:
    case Op::kLane:
    case Op::kShuffle:
    case Op::kTable:
    case Op::kRamp:
    case Op::kFold:
    case Op::kPart:
      return false;
  }
  return false;
}

class ProgramCheck {
 public:
  ProgramCheck(SpecGraph& g, int program)
      : g_(g),
        listed_(g.nodes.size(), kUnlisted),
        block_(g.nodes.size(), kUnlisted),
        varies_(g.nodes.size()) {
    for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
      varies_[i] = Varies(i);
      const SpecNode& n = g.nodes[i];
      if (n.op != Op::kVar || !n.sure()) continue;
      const std::string& name = std::get<VarArg>(n.arg->value).name;
      if (!absl::StartsWith(name, "rt_")) blocks_known_ = SpecPoints::Blocks::kUnknown;
      for (absl::string_view thread : {"rt_thread", "rt_row"}) {
        if (name == thread && n.value.vmax() > 0) threads_.push_back(thread);
      }
    }
    const auto srcs = g.srcs(program);
    for (size_t p = 0; p < srcs.size(); ++p) {
      int& at = listed_[srcs[p]];
      if (at == kUnlisted) at = static_cast<int>(p);
    }
    blocks_.push_back({kUnlisted, 0, true});
    open_.push_back(0);
    for (size_t p = 0; p < srcs.size(); ++p) {
      now_ = static_cast<int>(p);
      Statement(srcs[p]);
    }
    Unclosed();
    CheckFills();
  }

 private:
  // Among what a value may differ.
  enum Variation : uint8_t { kAlike = 0, kByWorker = 1, kByThread = 2 };

  // A loop's or IF's body; the first is the whole program.
  struct Block {
    int head;
    int depth;
    bool open;
    int64_t grid = 1, copies = 1, threads = 1;  // products of the ranges of a kind around
    bool late = false;
    bool may_not_run = false;  // an IF or a loop that may be empty is around
    Variation varies = kAlike;
  };

  int current() const { return open_.back(); }

  void Statement(int i) {
    const SpecNode& n = g_.nodes[i];
    if (listed_[i] != now_ && HasPlace(n.op)) {
      return g_.Report(n.op == Op::kEnd ? SpecRule::kRangeClosedTwice : SpecRule::kStatementTwice,
                       i, Info(n.op).text, ": is listed twice");
    }
    if (n.op == Op::kEnd) return End(i);
    for (int s : g_.srcs(i)) Use(s, i);
    lost_a_fill_ |= (IsPut(n.op) || n.op == Op::kFetch) && !n.sure();
    if ((n.op == Op::kLoad || IsPut(n.op)) && n.sure() && g_.src(i, 0).op != Op::kReg) Access(i);
    if (n.op == Op::kFragment && n.num_srcs == 3 && n.sure()) Tile(i);
    if (n.op == Op::kFetch && n.sure()) {
      // Where its gate is false it stores zeros.
      const auto elements = static_cast<int>(std::get<Ints>(n.arg->value)[1]);
      Keep(CheckOffset(i, 0, 1, elements, /*gate=*/5), fills_);
      CheckOffset(i, 2, 3, elements, /*gate=*/4);
    }
    if (n.op == Op::kRange || n.op == Op::kIf) Open(i);
    if (n.op == Op::kReg && n.sure()) {
      const int64_t id = std::get<int64_t>(n.arg->value);
      if (const int first = regs_.emplace(id, i).first->second; first != i) {
        g_.Report(SpecRule::kSetForm, i, "REG: the id ", id, " is taken by ", g_.NodeText(first));
      }
    }
    const uint8_t varies = blocks_[current()].varies;
    if ((n.op == Op::kBarrier && varies != kAlike) ||
        (n.op == Op::kCombine && (varies & kByThread))) {
      g_.Report(SpecRule::kThreadsAlike, i, Info(n.op).text,
                ": is in an IF or loop that some threads may run and others not: ",
                g_.NodeText(blocks_[current()].head));
    }
    // An expression that is listed again is known already, or computed again where it is not.
    if (block_[i] == kUnlisted || !blocks_[block_[i]].open || HasPlace(n.op)) block_[i] = current();
  }

  // The workers or threads among which node i may differ. A loop's index is alike in all that run
  // the loop alike; what is read from one place is the same for all.
  Variation Varies(int i) const {
    const SpecNode& n = g_.nodes[i];
    if (n.op == Op::kVar && n.sure()) {
      const std::string& name = std::get<VarArg>(n.arg->value).name;
      if (name == "rt_thread") return kByThread;
      return name == "rt_worker" || name == "rt_row" ? kByWorker : kAlike;
    }
    if (n.op == Op::kFragment || n.op == Op::kReg) return kByThread;
    uint8_t all = kAlike;
    for (int s : g_.srcs(i)) all |= varies_[s];
    return static_cast<Variation>(all);
  }

  static bool MayNotRun(const SpecNode& head) {
    if (!head.sure()) return true;
    if (head.op == Op::kIf) return head.value.src(0).vmin() != 1;
    return head.num_srcs != 3 || head.value.src(0).vmax() >= head.value.src(1).vmin();
  }

  void Open(int i) {
    const SpecNode& n = g_.nodes[i];
    Block b = blocks_[current()];
    b.head = i;
    ++b.depth;
    b.late = false;
    b.may_not_run |= MayNotRun(n);
    b.varies = static_cast<Variation>(b.varies | varies_[i]);
    if (n.op == Op::kRange && n.sure() && n.num_srcs == 3) Limits(i, b);
    open_.push_back(static_cast<int>(blocks_.size()));
    blocks_.push_back(b);
  }

  void Limits(int i, Block& b) {
    const UOp& range = g_.nodes[i].value;
    int64_t trips = 0;
    if (__builtin_sub_overflow(range.src(1).vmax(), range.src(0).vmin(), &trips)) trips = INT64_MAX;
    const int64_t step = std::max<int64_t>(1, range.src(2).vmin());
    trips = trips <= 0 ? 0 : (trips - 1) / step + 1;
    const auto limit = [&](int64_t& product, const char* what, int64_t most) {
      if (__builtin_mul_overflow(product, trips, &product)) product = INT64_MAX;
      if (product <= most) return;
      g_.Report(SpecRule::kLaunchLimits, i, product, " ", what, "; the target takes ", most);
    };
    const Target& target = g_.options.target;
    switch (range.arg<RangeArg>().kind) {
      case RangeKind::kGrid:
        return limit(b.grid, "grid points", target.max_grid);
      case RangeKind::kUnroll:
        return limit(b.copies, "unrolled copies", target.max_unroll);
      case RangeKind::kThread:
      case RangeKind::kRow:
        return limit(b.threads, "threads of a block", target.max_threads);
      case RangeKind::kVector: {
        int64_t lanes = 1;
        return limit(lanes, "lanes", target.max_lanes);
      }
      case RangeKind::kLoop:
      case RangeKind::kMatrix:
        return;
    }
  }

  void End(int i) {
    const SpecNode& n = g_.nodes[i];
    if (n.bad || n.num_srcs != 1) {
      lost_an_end_ = true;  // what it closes is unknown
      return;
    }
    const int head = g_.srcs(i)[0];
    const int block = block_[head];
    if (block == kUnlisted) return NotYet(head, i);
    if (blocks_[block].head != head) return;  // what is wrong with it has been reported
    if (blocks_[block].late) {
      blocks_[block].late = blocks_[block].open = false;
      return;
    }
    if (!blocks_[block].open) {
      return g_.Report(SpecRule::kRangeClosedTwice, i, "END: ", g_.NodeText(head),
                       " is closed already");
    }
    if (block != current()) {
      g_.Report(SpecRule::kEndNesting, i, "END: ", g_.NodeText(blocks_[current()].head),
                " is still open inside ", g_.NodeText(head));
    }
    // What else was opened inside is over as well; its own END, which comes too late, has been
    // reported with this one.
    while (open_.back() != block) {
      blocks_[open_.back()].late = true;
      open_.pop_back();
    }
    blocks_[block].open = false;
    open_.pop_back();
  }

  void NotYet(int s, int user) {
    if (g_.nodes[s].bad) return;
    const bool later = listed_[s] != kUnlisted;
    g_.Report(later ? SpecRule::kStatementOrder : SpecRule::kStatementListed, user,
              Info(g_.nodes[user].op).text, ": uses ", g_.NodeText(s),
              later ? ", which comes later" : ", which is not in the program's list");
    block_[s] = 0;  // once is enough
  }

  // Node `user` uses node s here: s, or all that an unlisted s is made of, must be at hand.
  void Use(int s, int user) {
    std::vector<std::pair<int, bool>> stack = {{s, false}};
    while (!stack.empty()) {
      const auto [i, done] = stack.back();
      stack.pop_back();
      if (block_[i] != kUnlisted) {
        if (!blocks_[block_[i]].open) {
          g_.Report(SpecRule::kUsedAfterEnd, user, Info(g_.nodes[user].op).text, ": uses ",
                    g_.NodeText(i), " after its loop or IF");
          block_[i] = 0;
        }
      } else if (listed_[i] != kUnlisted || HasPlace(g_.nodes[i].op)) {
        NotYet(i, user);
      } else if (!done) {
        stack.emplace_back(i, true);
        for (int k : g_.srcs(i)) stack.emplace_back(k, false);
      } else {
        int block = 0;
        for (int k : g_.srcs(i)) {
          if (block_[k] > 0 && blocks_[block_[k]].depth > blocks_[block].depth) block = block_[k];
        }
        block_[i] = block;
      }
    }
  }

  void Access(int i) {
    const SpecNode& n = g_.nodes[i];
    const int gate = IsPut(n.op) ? 3 : 2;
    const DType t = IsPut(n.op) ? g_.src(i, 2).dtype : n.dtype;
    const std::optional<SpecAccess> access = CheckOffset(i, 0, 1, t.lanes(), gate);
    if (access && IsPut(n.op)) CheckApart(g_, *access, threads_, blocks_known_);
    if (g_.src(i, 0).op == Op::kScratch) Keep(access, IsPut(n.op) ? fills_ : reads_);
  }

  // A tile, from its first row to the end of its last one.
  void Tile(int i) {
    const SpecNode& stride = g_.src(i, 2);
    if (!stride.sure() || !stride.value.IsConst()) return;
    const int64_t row = kBytesOfTileRow / g_.nodes[i].dtype.bytes();
    const int64_t reach = (kRowsOfTile - 1) * stride.value.vmin() + row;
    if (reach >= row && reach <= INT32_MAX) {
      CheckOffset(i, 0, 1, static_cast<int>(reach), /*gate=*/3);
    }
  }

  // An access of scratch, and where it stands.
  struct Kept {
    SpecAccess access;
    int at;
  };
  void Keep(const std::optional<SpecAccess>& access, std::vector<Kept>& to) {
    if (!g_.Applies(SpecRule::kScratchFilled)) return;
    lost_a_fill_ |= !access;
    if (access) to.push_back({*access, now_});
  }

  // What is read of a SCRATCH is put there before, or in an earlier round of a loop around both.
  void CheckFills() {
    if (lost_an_end_ || lost_a_fill_ || reads_.empty()) return;
    std::vector<SpecFill> filled;
    for (const Kept& f : fills_) filled.push_back(FillOf(g_, f.access, blocks_known_));
    for (const Kept& r : reads_) {
      std::vector<const SpecFill*> candidates;
      for (size_t k = 0; k < fills_.size(); ++k) {
        const Kept& f = fills_[k];
        if (f.access.pointer != r.access.pointer) continue;
        const auto& [loops, around] = std::tie(r.access.loops, f.access.loops);
        const bool again = !loops.empty() && !around.empty() && loops[0] == around[0];
        if (f.at < r.at || again) candidates.push_back(&filled[k]);
      }
      CheckFilled(g_, r.access, candidates, blocks_known_);
    }
  }

  // The access of node i by its sources `pointer` and `at`, under its source `gate` if it has one.
  std::optional<SpecAccess> CheckOffset(int i, int pointer, int at, int lanes, int gate) {
    if (!g_.src(i, at).sure()) return std::nullopt;
    SpecAccess access{i, g_.srcs(i)[pointer], g_.src(i, at).value, lanes};
    if (g_.nodes[i].num_srcs > gate) access.conditions.push_back(g_.src(i, gate).value);
    access.runs = !blocks_[current()].may_not_run;
    for (int b : open_) {
      if (b == 0) continue;
      const SpecNode& head = g_.nodes[blocks_[b].head];
      if (!head.sure()) return std::nullopt;
      if (head.op == Op::kIf) {
        access.conditions.push_back(head.value.src(0));
      } else {
        access.loops.push_back(head.value);
      }
    }
    CheckAccess(g_, access, SpecPoints::Reads::kUnknown, blocks_known_);
    return access;
  }

  void Unclosed() {
    if (lost_an_end_) return;
    for (size_t k = 1; k < open_.size(); ++k) {
      const int head = blocks_[open_[k]].head;
      const bool is_if = g_.nodes[head].op == Op::kIf;
      g_.Report(is_if ? SpecRule::kIfUnclosed : SpecRule::kRangeUnclosed, head,
                Info(g_.nodes[head].op).text, ": has no END");
    }
  }

  SpecGraph& g_;
  std::vector<int> listed_;  // where a node is first listed
  std::vector<int> block_;   // the innermost block that a node's value needs, once it is made
  std::vector<Block> blocks_;
  std::vector<int> open_;
  std::vector<Variation> varies_;           // by node
  absl::flat_hash_map<int64_t, int> regs_;  // by id
  SpecPoints::Blocks blocks_known_ = SpecPoints::Blocks::kWithinBounds;
  int now_ = 0;
  bool lost_an_end_ = false;
  bool lost_a_fill_ = false;                           // what it puts where is not known
  absl::InlinedVector<absl::string_view, 2> threads_;  // variables of several values
  std::vector<Kept> fills_, reads_;
};

// Whether a function of the source cannot have the name.
bool IsTaken(absl::string_view name) {
  static constexpr absl::string_view kWords[] = {
      "alignas",      "alignof",      "and",           "and_eq",
      "asm",          "auto",         "bitand",        "bitor",
      "bool",         "break",        "case",          "catch",
      "char",         "char16_t",     "char32_t",      "char8_t",
      "class",        "co_await",     "co_return",     "co_yield",
      "compl",        "concept",      "const",         "const_cast",
      "consteval",    "constexpr",    "constinit",     "continue",
      "decltype",     "default",      "delete",        "do",
      "double",       "dynamic_cast", "else",          "enum",
      "explicit",     "export",       "extern",        "false",
      "float",        "for",          "friend",        "goto",
      "if",           "inline",       "int",           "long",
      "main",         "mutable",      "namespace",     "new",
      "noexcept",     "not",          "not_eq",        "nullptr",
      "operator",     "or",           "or_eq",         "private",
      "protected",    "public",       "register",      "reinterpret_cast",
      "requires",     "return",       "short",         "signed",
      "sizeof",       "static",       "static_assert", "static_cast",
      "struct",       "switch",       "template",      "this",
      "thread_local", "throw",        "true",          "try",
      "typedef",      "typeid",       "typename",      "union",
      "unsigned",     "using",        "virtual",       "void",
      "volatile",     "wchar_t",      "while",         "xor",
      "xor_eq"};
  return absl::StartsWith(name, "rt_") || absl::StartsWith(name, "RT_") ||
         absl::c_linear_search(kWords, name);
}

// What becomes the name of a function, or the end of one's, in the source.
void CheckSourceName(SpecGraph& g, int i) {
  const SpecNode& n = g.nodes[i];
  if (!n.sure() || (n.op != Op::kProgram && n.op != Op::kMma)) return;
  const std::string& name = n.value.arg<std::string>();
  bool plain = !name.empty() && !absl::ascii_isdigit(name[0]);
  for (char c : name) plain &= absl::ascii_isalnum(c) || c == '_';
  if (plain && n.op == Op::kProgram && IsTaken(name)) {
    return g.Report(SpecRule::kArgument, i, "PROGRAM: the source that it becomes has another use ",
                    "for the name '", name, "'");
  }
  if (plain) return;
  g.Report(n.op == Op::kMma ? SpecRule::kMatrixForm : SpecRule::kArgument, i, Info(n.op).text,
           ": takes a name of letters, digits and _, not '", absl::CEscape(name.substr(0, 80)),
           "'");
}

}  // namespace

void CheckProgramGraph(SpecGraph& g) {
  CheckRanges(g);
  CheckLaunch(g);
  CheckScratch(g);
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    CheckSourceName(g, i);
    if (g.nodes[i].op == Op::kProgram) ProgramCheck(g, i);
  }
}

}  // namespace tessera
