// A row of the benchmark table, and how its times are taken.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace tessera::benchmarks {

struct Row {
  std::string name;
  std::optional<double> ours_ms;
  std::string peer;               // what ours is compared with; empty: nothing
  std::optional<double> peer_ms;  // measured in this run, interleaved with ours
  double bytes = 0, flops = 0;    // the least that the computation moves and does
  int64_t kernels = 0;            // that one of ours ran
  std::string note;
  // Peer time over ours: above 1, ours is faster.
  std::optional<double> ratio() const {
    if (!ours_ms || !peer_ms || *ours_ms <= 0) return std::nullopt;
    return *peer_ms / *ours_ms;
  }
};

// Milliseconds of one call.
double Milliseconds(const std::function<void()>& fn);

// The median and the least of each function's times, over rounds in which each runs once, in turn:
// what slows the machine for a while slows all of them. The first round is not counted; after a
// minute three others are enough. A null function is left out. Where they are to be `settled`, as
// beside libraries with threads of their own, each begins when what the one before left spinning
// has come to rest, and runs untimed for a while: a product of 1024 x 1024 bf16 took 1.5 times as
// long right after PyTorch's.
struct Times {
  double median = 0, least = 0;
};
std::vector<Times> Interleaved(const std::vector<std::function<void()>>& fns, int rounds,
                               bool settled = false);

double Median(std::vector<double> values);

// A row of ours and a peer, or of ours alone; `settled` as for Interleaved.
Row Measured(const std::string& name, double bytes, double flops,
             const std::function<Tensor()>& ours, const std::string& peer,
             const std::function<void()>& step, bool settled = false);

// A row beside PyTorch, of which `text` defines a function step(); of ours alone where `python`,
// the program, does not have it.
Row BesideTorch(const std::string& name, const std::string& python, const std::string& text,
                double bytes, double flops, const std::function<Tensor()>& ours);

// A hand-written loop over [0, n): every core its share, the cores awake between calls as they are
// between our kernels. The sum of what the shares give.
float OnCores(int64_t n, const std::function<float(int64_t begin, int64_t end)>& loop);

// Ends the process with a message unless the values agree within a relative and absolute tolerance.
void CheckClose(const std::string& what, const std::vector<float>& got,
                const std::vector<double>& want, double tolerance);

// The rows of each subject; only those whose name `wanted` accepts.
using Wanted = std::function<bool(const std::string&)>;
std::vector<Row> GraphRows(const Wanted& wanted);
std::vector<Row> NvrtcRows(const Wanted& wanted);
std::vector<Row> KernelRows(const Wanted& wanted);
std::vector<Row> MatMulRows(const Wanted& wanted);
std::vector<Row> GemvRows(const Wanted& wanted);
std::vector<Row> ShardedRows(const Wanted& wanted);
// `python` is the program that has PyTorch, if any has.
std::vector<Row> NetworkRows(const Wanted& wanted, const std::string& python);
std::vector<Row> OperationRows(const Wanted& wanted, const std::string& python);
std::vector<Row> TrainingRows(const Wanted& wanted, const std::string& python);
// None where the CPU has no matrix unit.
std::vector<Row> TileRows(const Wanted& wanted);
// One of them: a product of n x n bf16.
Row TileRow(const std::string& name, int64_t n);
// `program` is the path of bench-first-result.
std::vector<Row> FirstResultRows(const Wanted& wanted, const std::string& program);
std::vector<Row> CoreRows(const Wanted& wanted, const std::string& program);
std::vector<Row> CompileRows(const Wanted& wanted);

}  // namespace tessera::benchmarks
