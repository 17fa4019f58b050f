// From groups to kernels in index form, plan buffers and steps.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "graph/infer.h"
#include "graph/loop_form.h"
#include "graph/rewrite.h"
#include "graph/status.h"
#include "schedule/localise.h"
#include "schedule/passes.h"
#include "schedule/schedule.h"

namespace tessera {
namespace {

// Everything that names a kernel: what it does and over what.
std::string KernelName(const UOp& value) {
  const UOp* widest = nullptr;
  const char* kind = value.is(Op::kScatter) ? "scatter" : "map";
  const std::vector<UOp> order = TopoSort({&value, 1});
  for (const UOp& u : order) {
    if (!u.is(Op::kReduce)) continue;
    kind = IsContraction(u) || IsScaledDots(u) ? "dot" : "reduce";
    widest = &u.src(0);
  }
  const Shape& shape = widest != nullptr ? widest->shape() : value.shape();
  std::string name = kind;
  char sep = '_';
  for (const Extent& e : shape) {
    if (e.is_int(1)) continue;
    name += sep;
    name += e.is_int() ? absl::StrCat(e.value()) : "n";
    sep = 'x';
  }
  return absl::StrCat(name, "_", value.dtype().ToString());
}

class KernelMaker {
 public:
  KernelMaker(absl::Span<const UOp> roots, const Fusion& fusion,
              absl::Span<const OutlinedLoop> loops, const Targets& targets, Device default_device,
              IndexForms& forms)
      : roots_(roots),
        fusion_(fusion),
        loops_(loops),
        rans_(loops.size()),
        targets_(targets),
        default_(default_device),
        forms_(forms) {}

  absl::StatusOr<Plan> Run() {
    for (const FusedGroup& g : fusion_.groups) {
      const UOp& r = g.roots[0];
      if (r.is(Op::kRan)) rans_[LoopOfRan(r)].push_back(r);
    }
    for (const FusedGroup& g : fusion_.groups) {
      const UOp& r = g.roots[0];
      if (r.is(Op::kRan)) {
        // All that a loop leaves is there with the first of it.
        if (rans_[LoopOfRan(r)][0] == r) RETURN_IF_ERROR(AddLoop(LoopOfRan(r)));
      } else {
        RETURN_IF_ERROR(IsTransfer(r) ? AddTransfer(r) : AddKernel(g));
      }
    }
    if (too_large_) return TooLarge(too_large_.shape(), too_large_.dtype());
    for (size_t i = 0; i < roots_.size(); ++i) {
      const int b = BufferOf(roots_[i]);
      plan_.roots.push_back(b);
      PlanBuffer& buffer = plan_.buffers[b];
      if (buffer.kind == PlanBuffer::kTemp) {
        buffer.kind = PlanBuffer::kOutput;
        buffer.slot = static_cast<int>(i);
      }
    }
    return std::move(plan_);
  }

 private:
  int BufferOf(const UOp& u) {
    // Of a version, that of the one before: kept for each, as there may be many.
    const UOp* first = &u;
    while (first->is(Op::kAssign) && !buffers_.contains(first->get())) first = &first->src(0);
    const UOp base = *first;
    const auto [it, fresh] =
        buffers_.try_emplace(base.get(), static_cast<int>(plan_.buffers.size()));
    const int buffer = it->second;
    for (const UOp* v = &u; !(*v == base); v = &v->src(0)) buffers_.emplace(v->get(), buffer);
    if (fresh) {
      AddBuffer(base, PlanBuffer::kTemp);
      if (base.is(Op::kParam)) {
        plan_.buffers.back().kind = PlanBuffer::kInput;
        plan_.buffers.back().slot = static_cast<int>(base.arg<ParamArg>().slot);
      }
      if (base.shape().MaxElements() > kMostElements) too_large_ = base;
    }
    return buffer;
  }

  int AddBuffer(const UOp& like, PlanBuffer::Kind kind) {
    PlanBuffer b;
    b.kind = kind;
    b.dtype = like.dtype();
    b.shape = like.shape();
    b.device = like.device() ? like.device() : default_;
    b.bytes = std::min(like.shape().MaxElements(), kMostElements) * like.dtype().bytes();
    plan_.on_meshes |= b.device.is_sharding();
    plan_.buffers.push_back(std::move(b));
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  absl::Status AddTransfer(const UOp& u) {
    PlanStep step;
    step.kind = PlanStep::kCopy;
    step.buffers.push_back(BufferOf(u));
    for (const UOp& s : u.srcs()) step.buffers.push_back(BufferOf(s));
    step.site = u.call_site();
    step.why = u.note();
    if (u.is(Op::kExchange)) {
      step.kind = PlanStep::kExchange;
      step.from = u.arg<ExchangeArg>().from;
      step.to = u.arg<ExchangeArg>().to;
      if (const Ints& over = u.arg<ExchangeArg>().over; !over.empty()) {
        step.kind = PlanStep::kReduceScatter;
        step.op = u.arg<ExchangeArg>().op;
        step.dims.assign(over.begin(), over.end());
      }
    } else if (u.is(Op::kAllReduce)) {
      step.kind = PlanStep::kAllReduce;
      step.op = u.arg<ReduceArg>().op;
      for (int64_t d : u.arg<ReduceArg>().axes) step.dims.push_back(static_cast<int>(d));
    }
    plan_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  UOp ParamLike(size_t slot, const UOp& u) const {
    return MakeParam(static_cast<int64_t>(slot), u, u.device() ? u.device() : default_);
  }

  // The steps of a loop that is wanted for some of its RESULTs, its RANs.
  absl::Status AddLoop(int number) {
    const LoopForm form(loops_[number].loop);
    const std::vector<UOp>& rans = rans_[number];
    std::vector<UOp> stacked;
    std::vector<int> results(form.carried.size(), -1), of_slots, of_roots;
    for (const UOp& ran : rans) {
      if (const auto r = static_cast<size_t>(ResultOfRan(ran)); r < results.size()) {
        results[r] = BufferOf(ran);
      } else {
        stacked.push_back(ran);
      }
    }
    PlanLoop loop = CarriedOf(form, results);
    PlanStep begin;
    begin.kind = PlanStep::kLoop;
    begin.site = rans[0].call_site();
    for (const PlanLoop::Carried& c : loop.carried) {
      begin.buffers.insert(begin.buffers.end(), {c.buffers[0], c.buffers[1]});
      of_roots.push_back(c.given);
    }
    for (const UOp& ran : stacked) begin.buffers.push_back(BufferOf(ran));
    loop.num_written = static_cast<int>(begin.buffers.size());
    // Slots of the body: what the RANs read, but carried values as a turn takes them; then stacks.
    for (const UOp& read : rans[0].srcs()) {
      const size_t slot = of_slots.size();
      const int buffer = BufferOf(read);
      begin.buffers.push_back(buffer);
      if (slot < loop.carried.size()) loop.carried[slot].buffers[2] = buffer;
      of_slots.push_back(slot < loop.carried.size() ? loop.carried[slot].taken : buffer);
    }
    for (const UOp& ran : stacked) of_slots.push_back(BufferOf(ran));
    Plan body;
    if (form.turns.vmax() > 0) {
      ASSIGN_OR_RETURN(body, BodyOf(number, stacked));
    }
    begin.loop = static_cast<int>(plan_.loops.size());
    PlanStep end = begin;
    end.kind = PlanStep::kEndLoop;
    plan_.loops.push_back(std::move(loop));
    plan_.steps.push_back(std::move(begin));
    Append(body, of_slots, of_roots);
    plan_.steps.push_back(std::move(end));
    return absl::OkStatus();
  }

  // A loop with buffers for what is carried, but where it begins; a result that nobody wants (-1)
  // has one all the same.
  PlanLoop CarriedOf(const LoopForm& form, absl::Span<const int> results) {
    PlanLoop out;
    out.turns = Extent(form.turns);
    out.backwards = form.backwards;
    out.variable = TurnOf(form).name;
    for (size_t c = 0; c < results.size(); ++c) {
      const auto add = [&](PlanBuffer::Kind kind) { return AddBuffer(form.carried[c], kind); };
      const int result = results[c] >= 0 ? results[c] : add(PlanBuffer::kTemp);
      const int other = add(PlanBuffer::kTemp), taken = add(PlanBuffer::kOfTurn);
      out.carried.push_back({{result, other, -1}, taken, add(PlanBuffer::kOfTurn)});
    }
    return out;
  }

  // The variable that says which turn it is.
  static VarArg TurnOf(const LoopForm& form) {
    return {absl::StrCat("@turn", form.height), 0, form.turns.vmax() - 1};
  }

  // The steps of one turn: its roots are what is carried on, and what it writes into stacks.
  absl::StatusOr<Plan> BodyOf(int number, absl::Span<const UOp> stacked) {
    const OutlinedLoop& outlined = loops_[number];
    const LoopForm form(outlined.loop);
    const size_t carried = form.carried.size();
    const UOp& ran = rans_[number][0];
    const Extent at(UOp::Make(Op::kVar, kInt64, {}, TurnOf(form)));
    Substitution items;
    for (const UOp& item : form.Items()) {
      const auto k = static_cast<size_t>(NumberOfItem(item));
      if (k < carried) {
        items.emplace(item, ParamLike(k, form.carried[k]));
        continue;
      }
      const UOp& value = outlined.values[k - carried];
      items.emplace(item, form.IsOfSequence(NumberOfItem(item)) ? ElementOf(value, at) : value);
    }
    const std::vector<UOp> given = Substitute(form.body.srcs(), items);
    std::vector<UOp> roots;
    absl::flat_hash_set<UOp> is_root;
    for (size_t c = 0; c < carried; ++c) {
      // A buffer of its own: not that of what a turn takes, nor of another root.
      UOp own = given[c].size() > 0 ? given[c] : UOp::Make(Op::kContiguous, {given[c]});
      while (!is_root.insert(own).second) own = UOp::Make(Op::kContiguous, {own});
      roots.push_back(std::move(own));
    }
    for (size_t i = 0; i < stacked.size(); ++i) {
      const int result = ResultOfRan(stacked[i]);
      const bool taken = result >= form.body.size();
      const UOp value =
          taken ? ParamLike(result - form.body.size(), form.carried[result - form.body.size()])
                : given[result];
      const UOp stack = ParamLike(static_cast<size_t>(ran.size()) + i, stacked[i]);
      roots.push_back(UOp::Make(Op::kAssign, {stack, ElementOf(stack, at), value}));
      roots.back().SetMarks(stacked[i]);
    }
    return ScheduleKernels(roots, targets_, default_, /*on_meshes=*/false, {}, forms_);
  }

  // The steps of a plan over these buffers: of its slots, and of the first of its roots.
  void Append(const Plan& part, absl::Span<const int> of_slots, absl::Span<const int> of_roots) {
    std::vector<int> buffers(part.buffers.size());
    for (size_t b = 0; b < buffers.size(); ++b) {
      const PlanBuffer& buffer = part.buffers[b];
      if (buffer.kind == PlanBuffer::kInput) {
        buffers[b] = of_slots[buffer.slot];
      } else if (buffer.kind == PlanBuffer::kOutput) {
        buffers[b] = of_roots[buffer.slot];
      } else {
        buffers[b] = static_cast<int>(plan_.buffers.size());
        plan_.buffers.push_back(buffer);
      }
    }
    std::vector<int> kernels;
    for (const PlanKernel& k : part.kernels) {
      const auto [it, fresh] =
          kernels_.try_emplace(k.identity, static_cast<int>(plan_.kernels.size()));
      if (fresh) plan_.kernels.push_back(k);
      kernels.push_back(it->second);
    }
    const auto loops = static_cast<int>(plan_.loops.size());
    for (PlanLoop loop : part.loops) {
      for (PlanLoop::Carried& c : loop.carried) {
        for (int& b : c.buffers) b = buffers[b];
        c.taken = buffers[c.taken];
        c.given = buffers[c.given];
      }
      plan_.loops.push_back(std::move(loop));
    }
    for (PlanStep step : part.steps) {
      for (int& b : step.buffers) b = buffers[b];
      if (step.kernel >= 0) step.kernel = kernels[step.kernel];
      if (step.loop >= 0) step.loop += loops;
      plan_.steps.push_back(std::move(step));
    }
  }

  static UOp MakeParam(int64_t slot, const UOp& u, Device device) {
    return UOp::Make(Op::kParam, u.dtype(), {}, ParamArg{slot, u.shape().ToExtents(), device});
  }

  absl::Status AddKernel(const FusedGroup& group) {
    PlanStep step;
    step.site = group.roots[0].call_site();
    Substitution params;
    absl::flat_hash_map<int, UOp> param_of_buffer;
    const Device device = group.roots[0].device() ? group.roots[0].device() : default_;
    // Outputs come first. An ASSIGN's base is written through its view.
    for (const UOp& r : group.roots) {
      const UOp base = r.is(Op::kAssign) ? UOp(r.src(0)) : r;
      const UOp param = MakeParam(static_cast<int64_t>(step.buffers.size()), base, device);
      step.buffers.push_back(BufferOf(r));
      param_of_buffer[step.buffers.back()] = param;
      if (r.is(Op::kAssign)) params.emplace(base, param);
    }
    const int outputs = static_cast<int>(step.buffers.size());
    for (const UOp& in : group.inputs) {
      if (params.contains(in)) continue;
      const int b = BufferOf(in);
      UOp& param = param_of_buffer[b];
      if (!param) {
        param = MakeParam(static_cast<int64_t>(step.buffers.size()), in, device);
        step.buffers.push_back(b);
      }
      params.emplace(in, param);
    }
    std::vector<KernelOutput> kernel_outputs;
    for (int i = 0; i < outputs; ++i) {
      const UOp& r = group.roots[i];
      KernelOutput o;
      if (r.is(Op::kAssign)) {
        o.value = Substitute(r.src(2), params);
        // A part of the view may be read as well, from a buffer; what is written lies in the base.
        o.target = Substitute(r.src(1), {{r.src(0), params.at(r.src(0))}});
        params.emplace(r, o.value);  // what roots after it read of it
      } else if (r.is(Op::kReshape)) {
        o.value = Substitute(WrittenFor(r), params);
        o.target = UOp::Make(Op::kReshape, {param_of_buffer[step.buffers[i]]},
                             o.value.shape().ToExtents());
      } else {
        o.value = r.WithSrcs(Substitute(r.srcs(), params));
        o.target = param_of_buffer[step.buffers[i]];
      }
      kernel_outputs.push_back(std::move(o));
    }
    if (too_large_) return TooLarge(too_large_.shape(), too_large_.dtype());
    // Nothing to write: no step.
    if (kernel_outputs[0].value.shape().MaxElements() == 0) return absl::OkStatus();
    const UOp identity = KernelIdentity(kernel_outputs);
    auto [it, fresh] = kernels_.try_emplace(identity, static_cast<int>(plan_.kernels.size()));
    if (fresh) {
      PlanKernel k;
      k.identity = identity;
      k.device = device;
      const int64_t parts = UpdateParts(kernel_outputs[0].value, targets_.Of(device));
      ASSIGN_OR_RETURN(k.graph, IndexForm(kernel_outputs, forms_, parts));
      k.graph = KeepRunning(k.graph);
      k.name = KernelName(kernel_outputs[0].value);
      k.variables = VariablesOf(k.graph);
      k.num_buffers = static_cast<int>(step.buffers.size());
      k.num_outputs = outputs;
      plan_.kernels.push_back(std::move(k));
    }
    step.kernel = it->second;
    plan_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  absl::Span<const UOp> roots_;
  const Fusion& fusion_;
  absl::Span<const OutlinedLoop> loops_;
  std::vector<std::vector<UOp>> rans_;  // by loop
  const Targets& targets_;
  Device default_;
  IndexForms& forms_;
  Plan plan_;
  UOp too_large_;  // a value that no memory holds, if there is one
  absl::flat_hash_map<const Node*, int> buffers_;
  absl::flat_hash_map<UOp, int> kernels_;
};

}  // namespace

absl::StatusOr<Plan> MakeKernels(absl::Span<const UOp> roots, const Fusion& fusion,
                                 absl::Span<const OutlinedLoop> loops, const Targets& targets,
                                 Device default_device, IndexForms& forms) {
  return KernelMaker(roots, fusion, loops, targets, default_device, forms).Run();
}

}  // namespace tessera
