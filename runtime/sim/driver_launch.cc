// The simulated driver's launches: kernels, and graphs of them.
#include <algorithm>
#include <cstring>

#include "runtime/sim/driver.h"
#include "runtime/sim/faults.h"

namespace tessera::sim {
namespace {

using namespace cuda;

// A function belongs to the context that its module was loaded in, and runs nowhere else.
CUresult MakeCall(const KernelNodeParams& p, int device, KernelCall& out) {
  Function* const f = Of(p.func);
  const uint64_t threads = uint64_t{p.blockDimX} * p.blockDimY * p.blockDimZ;
  if (f == nullptr || threads == 0 || threads > 1024 || p.blockDimZ != 1 || p.gridDimX == 0 ||
      p.gridDimX > INT32_MAX || p.gridDimY != 1 || p.gridDimZ != 1 ||
      p.sharedMemBytes > f->most_shared) {
    return kInvalidValue;
  }
  if (f->device != device) return kInvalidHandle;
  out.function = f;
  out.launch.entry = f->entry;
  out.launch.name = f->name;
  out.launch.blocks = static_cast<int>(p.gridDimX);
  out.launch.threads = static_cast<int>(p.blockDimX);
  out.launch.rows = static_cast<int>(p.blockDimY);
  out.launch.shared_bytes = p.sharedMemBytes;
  out.arguments.resize(f->params);
  for (int i = 0; i < f->params; ++i) std::memcpy(&out.arguments[i], p.kernelParams[i], 8);
  return kSuccess;
}

CUresult LaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared, CUstream stream, void** params, void**) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  if (Strikes(Fault::kLaunch)) return kLaunchOutOfResources;
  KernelCall call;
  const KernelNodeParams p = {f, gx, gy, gz, bx, by, bz, shared, params, nullptr, nullptr, nullptr};
  Device* const d = Of(stream)->device;
  if (const CUresult r = MakeCall(p, d->index, call); r != kSuccess) return r;
  Task t;
  t.run = [d, call = std::move(call)] { return M().RunKernel(*d, call); };
  M().Enqueue(*Of(stream), std::move(t));
  return kSuccess;
}

// ---- graphs of kernels

struct Node {
  KernelCall call;
  std::vector<size_t> after;
};
struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
};
struct Exec {
  std::vector<Node> nodes;
  std::vector<const Node*> made_from;
};

CUresult AddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count,
                 const KernelNodeParams* params) {
  Graph& g = *reinterpret_cast<Graph*>(graph);
  auto node = std::make_unique<Node>();
  if (const CUresult r = MakeCall(*params, CurrentDevice(), node->call); r != kSuccess) return r;
  for (size_t i = 0; i < count; ++i) {
    for (size_t n = 0; n < g.nodes.size(); ++n) {
      if (g.nodes[n].get() == reinterpret_cast<Node*>(after[i])) node->after.push_back(n);
    }
  }
  if (node->after.size() != count) return kInvalidValue;
  *out = reinterpret_cast<CUgraphNode>(node.get());
  g.nodes.push_back(std::move(node));
  return kSuccess;
}

CUresult Instantiate(CUgraphExec* out, CUgraph graph, unsigned long long) {
  auto* exec = new Exec;
  for (const auto& n : reinterpret_cast<Graph*>(graph)->nodes) {
    exec->nodes.push_back(*n);
    exec->made_from.push_back(n.get());
  }
  *out = reinterpret_cast<CUgraphExec>(exec);
  return kSuccess;
}

CUresult SetNode(CUgraphExec exec, CUgraphNode node, const KernelNodeParams* params) {
  Lock lock(M().mutex);
  Exec& e = *reinterpret_cast<Exec*>(exec);
  for (size_t i = 0; i < e.nodes.size(); ++i) {
    if (e.made_from[i] != reinterpret_cast<Node*>(node)) continue;
    if (Of(params->func) != e.nodes[i].call.function) return kInvalidValue;
    return MakeCall(*params, e.nodes[i].call.function->device, e.nodes[i].call);
  }
  return kInvalidValue;
}

// The nodes in a random order that their edges allow.
absl::Status RunGraph(Device& d, const std::vector<Node>& nodes) {
  std::vector<bool> done(nodes.size(), false);
  for (size_t left = nodes.size(); left > 0; --left) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const bool may = std::all_of(nodes[i].after.begin(), nodes[i].after.end(),
                                   [&](size_t a) { return done[a]; });
      if (!done[i] && may) ready.push_back(i);
    }
    const size_t next = ready[M().random() % ready.size()];
    if (absl::Status s = M().RunKernel(d, nodes[next].call); !s.ok()) return s;
    done[next] = true;
  }
  return absl::OkStatus();
}

CUresult LaunchGraph(CUgraphExec exec, CUstream stream) {
  Lock lock(M().mutex);
  RETURN_IF_LOST(Of(stream));
  if (Strikes(Fault::kLaunch)) return kLaunchOutOfResources;
  Device* const d = Of(stream)->device;
  for (const Node& n : reinterpret_cast<Exec*>(exec)->nodes) {
    if (n.call.function->device != d->index) return kInvalidHandle;
  }
  ++M().counts.graph_launches;
  Task t;
  t.run = [d, nodes = reinterpret_cast<Exec*>(exec)->nodes] { return RunGraph(*d, nodes); };
  M().Enqueue(*Of(stream), std::move(t));
  return kSuccess;
}

}  // namespace

void FillLaunches(DriverTable& t) {
  t.cuLaunchKernel = LaunchKernel;
  t.cuGraphCreate = [](CUgraph* out, unsigned) {
    *out = reinterpret_cast<CUgraph>(new Graph);
    return CUresult{kSuccess};
  };
  t.cuGraphDestroy = [](CUgraph g) {
    delete reinterpret_cast<Graph*>(g);
    return CUresult{kSuccess};
  };
  t.cuGraphAddKernelNode = AddNode;
  t.cuGraphInstantiate = Instantiate;
  t.cuGraphExecKernelNodeSetParams = SetNode;
  t.cuGraphLaunch = LaunchGraph;
  t.cuGraphExecDestroy = [](CUgraphExec e) {
    delete reinterpret_cast<Exec*>(e);
    return CUresult{kSuccess};
  };
}

}  // namespace tessera::sim
