// Ops of com.microsoft on weights in blocks of few bits, each block with its scale.
#include <algorithm>
#include <iterator>

#include "examples/onnx/call.h"

namespace tessera::onnx {
namespace {

int64_t BitsOf(Call& c) {
  const int64_t bits = c.Int("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8) c.Unsupported("numbers of ", bits, " bits");
  return bits;
}

// The numbers in the bytes of the last axis, those of the least bits first.
Tensor Unpacked(const Tensor& bytes, int64_t bits) {
  if (bits == 8) return bytes;
  std::vector<Tensor> parts;
  for (int64_t shift = 0; shift < 8; shift += bits) {
    parts.push_back((bytes >> shift) & ((int64_t{1} << bits) - 1));
  }
  std::vector<int64_t> shape = Sizes(bytes);
  shape.back() *= 8 / bits;
  return Stack(parts, bytes.rank()).Reshape(shape);
}

// Rows of K numbers, a scale for each block of them; x under these as columns.
void MatMulNBits(Call& c) {
  const int64_t k = c.Int("K"), n = c.Int("N"), block = c.Int("block_size"), bits = BitsOf(c);
  if (k < 1 || n < 1 || block < 16 || (block & (block - 1)) != 0) {
    c.Fail("K is ", k, ", N ", n, " and block_size ", block);
  }
  if (c.Int("weight_prepacked", 0) != 0) c.Unsupported("weights in the order of a device");
  const int64_t blocks = (k - 1) / block + 1;
  const Tensor a = c.In(0), bytes = c.In(1);
  // Sizes from attributes may be as large as they like: they are not multiplied.
  const int64_t stored = bytes.elements(), blob = block / 8 * bits;
  if (bytes.dtype() != kUInt8 || stored % n != 0 || stored / n % blocks != 0 ||
      stored / n / blocks != blob) {
    c.Fail("weights of ", bytes.shape().ToString(), " for ", n, " rows of ", blocks, " blocks");
  }
  const DType wide = Promote(a.dtype(), kFloat32);
  const Tensor numbers = Unpacked(bytes.Reshape({n, blocks, -1}), bits).Cast(wide);
  const Tensor scale = c.In(2).Cast(wide).Reshape({n, blocks, 1});
  Tensor zero = Tensor::Scalar(static_cast<double>(int64_t{1} << (bits - 1)), wide);
  if (c.Has(3)) {
    zero = c.In(3);
    if (zero.dtype() == kUInt8) {
      zero = Unpacked(zero.Reshape({n, -1}), bits).SliceAxis(1, {0, blocks});
    }
    zero = zero.Cast(wide).Reshape({n, blocks, 1});
  }
  Tensor weight;
  if (c.Has(4)) {  // the block of each column
    const Tensor of = c.In(4).SliceAxis(0, {0, k});
    const auto each = [&](const Tensor& t) {
      return t.rank() == 0 ? t : t.Reshape({n, blocks}).Take(of, 1);
    };
    weight = (numbers.Reshape({n, -1}).SliceAxis(1, {0, k}) - each(zero)) * each(scale);
  } else {
    weight = ((numbers - zero) * scale).Reshape({n, blocks * block}).SliceAxis(1, {0, k});
  }
  const Tensor y = a.Cast(wide).MatMul(weight.T());
  c.Out((c.Has(5) ? y + c.In(5).Cast(wide) : y).Cast(a.dtype()));
}

// Numbers of 4 bits as bitsandbytes has them, an index into these; those of the higher bits first.
constexpr double kFp4[] = {0, 5.208333333e-03, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25};
constexpr double kNf4[] = {-1.0,
                           -0.6961928009986877,
                           -0.5250730514526367,
                           -0.39491748809814453,
                           -0.28444138169288635,
                           -0.18477343022823334,
                           -0.09105003625154495,
                           0.0,
                           0.07958029955625534,
                           0.16093020141124725,
                           0.24611230194568634,
                           0.33791524171829224,
                           0.44070982933044434,
                           0.5626170039176941,
                           0.7229568362236023,
                           1.0};

// The weights lie in one vector, by rows of K, in blocks that may span rows.
void MatMulBnb4(Call& c) {
  const int64_t k = c.Int("K"), n = c.Int("N"), block = c.Int("block_size");
  const Tensor a = c.In(0), bytes = c.In(1), scale = c.In(2);
  const int64_t stored = bytes.elements();
  if (k < 1 || n < 1 || block < 16 || k > 2 * stored || n > 2 * stored ||
      Product({n, k}) > 2 * stored || c.Int("transB", 1) == 0) {
    c.Fail("K is ", k, ", N ", n, " and block_size ", block, " for ", stored, " bytes");
  }
  std::vector<double> values(std::begin(kNf4), std::end(kNf4));
  if (c.Int("quant_type") == 0) {
    values.assign(std::begin(kFp4), std::end(kFp4));
    for (const double v : kFp4) values.push_back(-v);  // the highest bit is the sign
  }
  Tensor table = Tensor::From(std::vector<float>(values.begin(), values.end()));
  const Tensor pairs = Stack(std::vector<Tensor>{bytes.Flatten() >> 4, bytes.Flatten() & 15}, 1);
  const int64_t repeat = std::min(block, 2 * stored);
  const Tensor each = scale.Cast(kFloat32).Flatten().RepeatInterleave(repeat, 0);
  const Tensor weight = table.Take(pairs.Flatten().Cast(kInt32), 0).SliceAxis(0, {0, n * k}) *
                        each.SliceAxis(0, {0, n * k});
  c.Out(a.Cast(kFloat32).MatMul(weight.Reshape({n, k}).T()).Cast(a.dtype()));
}

// Scales and zero points have one number for each block of the quantised axis.
void GatherBlockQuantized(Call& c) {
  Tensor data = c.In(0), scale = c.In(2), zero = c.InOr(3);
  const int64_t block = c.Int("block_size", 128);
  const int gather = c.Axis(c.Int("gather_axis", 0), data.rank());
  int axis = c.Axis(c.Int("quantize_axis", 1), data.rank());
  const bool packed = !IsNarrow(ElementOf(c.Input(0)));
  if (packed && data.dtype() != kUInt8) c.Unsupported("data of ", data.dtype().ToString());
  if (block < 16) c.Fail("block_size is ", block);
  const int64_t bits = packed ? BitsOf(c) : 0;
  const bool gathers_blocks = gather == axis;
  const auto gathered = [&](const Tensor& t) {
    return t ? t.Take(Wrapped(c.In(1), t.size(gather)), gather) : t;
  };
  if (!gathers_blocks) {  // what is not taken needs no numbers
    data = gathered(data);
    scale = gathered(scale);
    zero = gathered(zero);
    if (axis > gather) axis += c.In(1).rank() - 1;
  }
  if (packed) data = Unpacked(data, bits);
  if (packed && zero) zero = Unpacked(zero, bits);
  const int64_t extent = data.size(axis);
  const auto spread = [&](const Tensor& t) {
    return t.RepeatInterleave(std::min(block, std::max<int64_t>(extent, 1)), axis)
        .SliceAxis(axis, {0, extent});
  };
  Tensor y = data.Cast(kFloat32);
  if (zero) {
    y = y - spread(zero).Cast(kFloat32);
  } else if (packed) {
    y = y - static_cast<double>(int64_t{1} << (bits - 1));
  }
  y = (y * spread(scale).Cast(kFloat32)).Cast(c.In(2).dtype());
  c.OutOf(gathers_blocks ? gathered(y) : y, 0);
}

constexpr OpRow kRows[] = {
    {"com.microsoft.GatherBlockQuantized", GatherBlockQuantized},
    {"com.microsoft.MatMulBnb4", MatMulBnb4},
    {"com.microsoft.MatMulNBits", MatMulNBits},
};

}  // namespace

absl::Span<const OpRow> MicrosoftBlockOps() { return kRows; }

}  // namespace tessera::onnx
