// What lowers a kernel: lower.cc (stores and values), lower_loops.cc (blocks and threads, too),
// lower_reduces.cc, lower_sums.cc (long ones in blocks) and lower_stages.cc (scratch).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codegen/gpu_numbers.h"
#include "codegen/memory_hints.h"
#include "codegen/passes.h"
#include "graph/kernel_form.h"
#include "graph/target.h"
#include "graph/uop.h"

namespace tessera {

// What a reduction takes up at each point, rescaled or not.
inline const UOp& TakenUp(const UOp& reduce) {
  return reduce.src(0).is(Op::kRescale) ? reduce.src(0).src(0) : reduce.src(0);
}

class Lowerer {
 public:
  Lowerer(const UOp& sink, const Target& target);
  absl::StatusOr<Lowered> Run(const std::string& name);

 private:
  struct Held {
    int64_t at = 0, size = 0;
    size_t home = 0;  // the number of blocks around it
  };
  // An open loop, or the function's body (bit 0): its statements so far, and what stands for each
  // node computed in it.
  struct Block {
    RangeMask bit = 0;
    UOp head;  // in the program: a RANGE, an IF, or nothing where all that run it take one value
    RangeKind kind = RangeKind::kLoop;
    std::vector<UOp> statements;
    absl::flat_hash_map<const Node*, UOp> values;
    // Of the block right around a loop that may not run: the loop's extent, and what was computed
    // of it. What the loop needs but does not change stands here, in an IF if there is any.
    UOp skipped, rounds;
    bool guarded = false;    // a loop with such a block around it
    std::vector<Held> held;  // all scratch that was made in it so far, and in loops within
  };

  // ---- values, and where they are computed

  int DepthOf(const UOp& u) const;
  // The outermost block in which everything that u depends on is known.
  int Known(const UOp& u) const;
  // The outermost in which it may be computed: nothing leaves what is around a loop that may not
  // run, as what it would read need not exist; but a stage whose own loops do not run either then.
  int Home(const UOp& u) const;
  // Whether the variables of an extent are among those of the extents that a stage is filled over.
  static bool SkippedAlike(const UOp& stage, const UOp& extent);
  UOp* Find(const UOp& u);
  UOp Append(int block, UOp statement);
  void Define(const UOp& u, const UOp& value) { blocks_[Home(u)].values.emplace(u.get(), value); }
  Arg FreshId() { return Arg(next_id_++); }
  // Emits whatever is missing for the nodes, sources first; not what is inside loops of their own.
  absl::Status Compute(const std::vector<UOp>& nodes);
  absl::Status Emit(const UOp& u);
  // Asks for what the next part of a panel has at this fragment's place.
  void AskForPart(int block, const UOp& pointer, const UOp& offset,
                  const MemoryHints::NextPart& part);
  // Runs `body` with the loops above `home` set aside, so that what it emits comes before them.
  absl::Status AtHome(int home, absl::FunctionRef<absl::Status()> body);

  // ---- stores

  absl::Status EmitStores(const std::vector<UOp>& stores, size_t depth);
  absl::Status EmitStore(const UOp& store);
  // On a GPU, where nothing is reduced: the values of some stores from the first on before any of
  // them, so that all that they read is under way at once.
  absl::Status ReadFirst(absl::Span<const UOp> stores, size_t first, size_t depth);
  // Reads what the element holds after all updates before this one.
  absl::Status EmitUpdate(const UOp& update);
  // The gate of an UPDATE, once all that it depends on is known and it has not been tested yet.
  UOp Testable(const UOp& store) const;
  // What is emitted from here on, if it depends on the innermost loop, is where the gate holds.
  absl::Status OpenIf(const UOp& gate);

  // ---- loops

  // With `strides`, loops of these steps around it, each over the points from one step of the loop
  // before to the next.
  absl::Status OpenLoop(const UOp& range, absl::Span<const int64_t> strides = {});
  // A range whose points run at once: each block, thread or row of threads is one of them.
  absl::Status OpenAtOnce(const UOp& range, const UOp& extent);
  void CloseLoop();  // ends the innermost loop or IF
  void AppendLoop(const Block& inner);
  void KeepHeld(const Block& closed);  // by the block around it
  // What the launch looks like: the blocks of the one grid range, the threads of the widest ranges.
  absl::Status ShapeLaunch();
  UOp ThreadVar() const;
  UOp RowVar() const;
  // Whether all threads of a block reach what is appended now: nothing open runs in some only.
  bool AllThreads() const;
  // True in one thread of those that would write the same, or nothing where there is only one.
  UOp OneThread();

  // ---- reductions

  absl::Status EmitReduces(const UOp& first);
  // What sums of tiles read from is filled before these have registers: it may take all of them.
  absl::Status FillForTiles(const std::vector<UOp>& group);
  // What is reduced in one loop with it: what runs over the same ranges, of the same depth; of sums
  // that are rescaled also those over the first of the ranges alone. Those come first, `few` of
  // them.
  std::vector<UOp> ReducedWith(const UOp& first, size_t& few);
  // Of each reduction, the loops that may not run in which all that reads it stands.
  void FindSkippable();
  // At a point of a loop: products that units sum one after another, the first of each sum before
  // the second of any, so that a unit is not waited for.
  absl::Status ComputeChains(const UOp& loop);
  void FindChains();
  // At a point of the range by which sums are rescaled: what they have so far is multiplied.
  absl::Status EmitRescales(const std::vector<UOp>& group, const std::vector<UOp>& regs);
  // The products of which a value is the sum, as units take them up one after another; none where
  // it is something else.
  static std::vector<UOp> ProductsOf(const UOp& value);
  // A reduction over the threads of a row: each computes its value, then all combine them.
  absl::Status EmitCombines(const std::vector<UOp>& group, int home);
  // A register that stands before the loop takes up the value of each of its points. Within the
  // loop there may be ranges whose points run at once, each with a register of its own.
  absl::Status EmitRunning(const UOp& u);
  bool OverThreads(const UOp& u) const;
  // A register for each, before the loops of a reduction, but for those that share one.
  absl::StatusOr<std::vector<UOp>> Registers(const std::vector<UOp>& group,
                                             const std::vector<int>& pool, int block);
  // What a reduction starts from: a constant, or one in every lane; of tiles that an UPDATE adds,
  // what they are added to.
  UOp Start(const UOp& r, int block);
  // In which other's register, by place in the group, each reduction takes up its values: its own,
  // unless there are more than MostSums. Then those that are only combined with one another share.
  std::vector<int> Pool(const std::vector<UOp>& group) const;
  // How many registers a loop's sums may take: half of all, and half of these where so much is done
  // for each that it has its last value long before it takes up the next.
  int MostSums(const std::vector<UOp>& group) const;
  // Of GPUs: what values read of memory, before anything is computed of it, as compilers keep the
  // order where many registers are in use; not where it is scratch that is read.
  absl::Status LoadFirst(const std::vector<UOp>& values);
  // One iteration: each register takes up its value. A sum of products is one rounding.
  absl::Status EmitSteps(absl::Span<const UOp> group, absl::Span<const UOp> regs);
  // The same of sums by a unit of several products each: the first product of all, then the second,
  // as the unit takes one up while it is at others. Their factors are there.
  void AddInTurn(absl::Span<const UOp> sums, absl::Span<const UOp> regs);

  // ---- long sums

  // How long sums of floats are taken in blocks: of each of the loops, outermost first, the steps
  // of loops around it, outermost first. No sum takes up many more values than a block has: what
  // it has so far grows, and more and more of the last bits of each would be lost.
  std::vector<std::vector<int64_t>> BlocksOfSums(const std::vector<UOp>& group) const;
  // Registers of a block's own for the sums, in the loop over blocks; those of the others stay.
  std::vector<UOp> RegistersOfBlock(const std::vector<UOp>& group, const std::vector<int>& pool,
                                    const std::vector<UOp>& whole, int block);
  // Adds a block's sums to those of all blocks, in the innermost loop.
  void AddBlock(const std::vector<UOp>& whole, const std::vector<UOp>& of_block);

  // ---- stages

  // Fills a stage's scratch at the outermost place where what it holds is known.
  absl::Status EmitStage(const UOp& stage);
  // Scratch that is free here. What stages inside of one had is free again once that one is filled.
  UOp MakeScratch(const UOp& stage);
  // Whether a thread may still read what shares bytes with this scratch: unless all have met in the
  // innermost loop since it did.
  bool MayBeInUse(const UOp& scratch) const;
  // A barrier for all threads of the block: before scratch is filled again, and once it is filled.
  absl::Status Arrive(bool only_in_loops);

  // Stages that are filled steps ahead of the loop that reads them. Scratch has a place for each
  // step that is under way; the offsets say which. So many steps are filled before the loop. Each
  // step of it waits for its own part; after the barrier all threads see that, and none still reads
  // the part of the step before, which then is filled anew. What cannot be fetched is loaded and
  // computed then, and stored once the step's own work is done.
  std::vector<UOp> FilledAhead(const UOp& loop) const;
  absl::Status FillFirst(const std::vector<UOp>& stages, const UOp& loop);
  absl::Status FillNext(const std::vector<UOp>& stages, const UOp& loop);
  // Its two halves. What units of several warps read in place they read while the next is fetched.
  absl::Status AwaitFilled(const std::vector<UOp>& stages);
  absl::Status FillFreed(const std::vector<UOp>& stages, const UOp& loop);
  // Fills the stages for step `at` of the loop, if there is one.
  absl::Status FillAt(const std::vector<UOp>& stages, const UOp& loop, const UOp& at);
  // Whether a store only copies 4, 8 or 16 bytes of memory to scratch.
  bool CanFetch(const UOp& store) const;
  absl::Status EmitFetch(const UOp& store);
  // Whether all of a stage is computed by all threads, in copies: its values fit in registers.
  bool IsLate(const UOp& stage) const;
  // The values of the next step; past the last one those of the last again, which nobody stores.
  absl::Status ComputeLate(const UOp& loop);
  absl::Status PutLate(const UOp& loop);

  static constexpr size_t kReadAtOnce = 8;

  const UOp sink_;
  const RangeSets sets_;
  const MemoryHints hints_;
  const int most_sums_;  // registers that sums may take, others left for operands
  const bool threads_;   // whether grid ranges are blocks of threads, not shares of workers
  const bool fetches_;   // whether the target copies to scratch without waiting
  Lowered shape_;
  absl::flat_hash_map<const Node*, int> depth_;
  std::vector<UOp> reduces_;
  absl::flat_hash_map<const Node*, RangeMask> skippable_;
  // Of sums by a matrix unit, the UPDATE that adds them.
  absl::flat_hash_map<const Node*, UOp> added_by_;
  // Of a GPU's units, if any sum has several: the first products, the second, ...; but for those
  // that reductions take up.
  std::vector<std::vector<UOp>> chains_;
  std::vector<Block> blocks_;
  bool extents_ = false;                           // whether an extent is being computed
  std::vector<UOp> tested_;                        // gates of UPDATEs that hold here
  absl::flat_hash_map<const Node*, UOp> earlier_;  // what RUNNINGs were at the point before
  absl::flat_hash_map<const Node*, UOp> scratch_;  // of stages that are filled ahead
  UOp next_;                                       // the step that is filled now
  std::vector<UOp> late_, late_values_;  // stages that are stored after their values are computed
  bool ahead_ = false;                   // inside what fills scratch before the step that reads it
  bool fetched_ = false;                 // something that it filled has not arrived
  std::vector<Held> held_;               // scratch that is in use, as it was made
  // All that was made in blocks that are set aside: what is filled before them is read after that.
  std::vector<Held> aside_;
  int64_t next_id_ = 0;
  int64_t combine_bytes_ = 0;  // before all scratch
  int64_t scratch_bytes_ = 0;
};

}  // namespace tessera
