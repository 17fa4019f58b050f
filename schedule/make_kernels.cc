// From groups to kernels in index form, plan buffers and steps.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/infer.h"
#include "graph/rewrite.h"
#include "graph/status.h"
#include "schedule/localise.h"
#include "schedule/passes.h"

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
  KernelMaker(absl::Span<const UOp> roots, const Fusion& fusion, const Targets& targets,
              Device default_device, IndexForms& forms)
      : roots_(roots),
        fusion_(fusion),
        targets_(targets),
        default_(default_device),
        forms_(forms) {}

  absl::StatusOr<Plan> Run() {
    for (const FusedGroup& g : fusion_.groups) {
      RETURN_IF_ERROR(IsTransfer(g.roots[0]) ? AddTransfer(g.roots[0]) : AddKernel(g));
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
      PlanBuffer b;
      if (base.is(Op::kParam)) {
        b.kind = PlanBuffer::kInput;
        b.slot = static_cast<int>(base.arg<ParamArg>().slot);
      }
      b.dtype = base.dtype();
      b.shape = base.shape();
      b.device = base.device() ? base.device() : default_;
      if (base.shape().MaxElements() > kMostElements) too_large_ = base;
      b.bytes = std::min(base.shape().MaxElements(), kMostElements) * base.dtype().bytes();
      plan_.on_meshes |= b.device.is_sharding();
      plan_.buffers.push_back(std::move(b));
    }
    return buffer;
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
                                 const Targets& targets, Device default_device, IndexForms& forms) {
  return KernelMaker(roots, fusion, targets, default_device, forms).Run();
}

}  // namespace tessera
