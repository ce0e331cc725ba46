#include "random_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

namespace k3::tools {
namespace {

using model::TensorRole;

constexpr std::size_t kTableSize = 65536;

enum class Spread : int {
  kMatrix,      // normal, standard deviation columns^-1/2; also the taps and projections of scores
  kEmbedding,   // normal, 0.02
  kNorm,        // normal around 1, 0.1
  kALog,        // log of uniform 1 to 16
  kDtBias,      // inverse softplus of log-uniform 0.001 to 0.1
  kRouterBias,  // normal, 0.02
  kPacked,      // two E2M1 codes of a normal, kCodeSpread
  kScale,       // E8M0 that give packed rows the spread of a matrix
};

// Standard deviation of E2M1 values: the largest of a group of 32 is then about 6, the largest code.
constexpr double kCodeSpread = 2.2;

Spread spread_of(TensorRole role) {
  switch (role) {
    case TensorRole::kEmbedding:
      return Spread::kEmbedding;
    case TensorRole::kFinalNorm:
    case TensorRole::kOutputResNorm:
    case TensorRole::kInputNorm:
    case TensorRole::kPostAttentionNorm:
    case TensorRole::kAttentionResNorm:
    case TensorRole::kMlpResNorm:
    case TensorRole::kKdaONorm:
    case TensorRole::kMlaQANorm:
    case TensorRole::kMlaKvANorm:
    case TensorRole::kLatentNorm:
      return Spread::kNorm;
    case TensorRole::kKdaALog:
      return Spread::kALog;
    case TensorRole::kKdaDtBias:
      return Spread::kDtBias;
    case TensorRole::kRouterBias:
      return Spread::kRouterBias;
    case TensorRole::kExpertW1:
    case TensorRole::kExpertW2:
    case TensorRole::kExpertW3:
      return Spread::kPacked;
    case TensorRole::kExpertW1Scale:
    case TensorRole::kExpertW2Scale:
    case TensorRole::kExpertW3Scale:
      return Spread::kScale;
    default:
      return Spread::kMatrix;
  }
}

// The value below which a normal variable stays with probability u (bisection of erfc: 2^-40).
double normal_quantile(double u) {
  double low = -8.0;
  double high = 8.0;
  for (int step = 0; step < 44; ++step) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < u ? low : high) = middle;
  }
  return low;
}

// [i]: the middle of the i-th of 65,536 equally likely parts.
const std::vector<float>& normal_table() {
  static const std::vector<float> kTable = [] {
    std::vector<float> table(kTableSize);
    for (std::size_t i = 0; i < kTableSize / 2; ++i) {
      const double u = (static_cast<double>(i) + 0.5) / kTableSize;
      table[i] = static_cast<float>(normal_quantile(u));
      table[kTableSize - 1 - i] = -table[i];
    }
    return table;
  }();
  return kTable;
}

double value_at(Spread spread, std::uint64_t cols, std::size_t i) {
  const double u = (static_cast<double>(i) + 0.5) / kTableSize;
  const double normal = normal_table()[i];
  switch (spread) {
    case Spread::kEmbedding:
    case Spread::kRouterBias:
      return 0.02 * normal;
    case Spread::kNorm:
      return 1.0 + 0.1 * normal;
    case Spread::kALog:
      return std::log(1.0 + 15.0 * u);
    case Spread::kDtBias: {
      const double dt = 0.001 * std::pow(100.0, u);
      return dt + std::log(-std::expm1(-dt));
    }
    default:
      return normal / std::sqrt(static_cast<double>(cols));
  }
}

std::uint8_t e2m1_code(double value) {
  constexpr std::array<double, 8> kValues = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  std::size_t best = 0;
  for (std::size_t code = 1; code < kValues.size(); ++code) {
    if (std::abs(kValues[code] - std::abs(value)) < std::abs(kValues[best] - std::abs(value))) {
      best = code;
    }
  }
  return static_cast<std::uint8_t>(best | (value < 0.0 ? 8U : 0U));
}

std::vector<std::uint8_t> packed_table() {
  std::array<std::uint8_t, 256> codes = {};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = e2m1_code(kCodeSpread * normal_table()[i * 256 + 128]);
  }
  std::vector<std::uint8_t> table(kTableSize);
  for (std::size_t i = 0; i < kTableSize; ++i) {
    table[i] = static_cast<std::uint8_t>(codes[i / 256] << 4U | codes[i % 256]);
  }
  return table;
}

// Exponents around the one of columns^-1/2: 120 at 3,584 and 3,072 columns.
std::vector<std::uint8_t> scale_table(std::uint64_t cols) {
  const double wanted = 1.0 / (kCodeSpread * std::sqrt(static_cast<double>(cols)));
  const int exponent = 127 + static_cast<int>(std::lround(std::log2(wanted)));
  std::vector<std::uint8_t> table(kTableSize);
  for (std::size_t i = 0; i < kTableSize; ++i) {
    const double u = static_cast<double>(i) / kTableSize;
    const int step = u < 0.02 ? -3 : u < 0.1 ? -2 : u < 0.35 ? -1 : u < 0.9 ? 0 : 1;
    table[i] = static_cast<std::uint8_t>(exponent + step);
  }
  return table;
}

// Rounds to nearest, ties to even; finite values only.
std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

TensorFiller::Table make_table(Spread spread, std::uint64_t cols, DType dtype) {
  if (spread == Spread::kPacked) {
    return packed_table();
  }
  if (spread == Spread::kScale) {
    return scale_table(cols);
  }
  std::vector<float> values(kTableSize);
  for (std::size_t i = 0; i < kTableSize; ++i) {
    values[i] = static_cast<float>(value_at(spread, cols, i));
  }
  if (dtype == DType::kF32) {
    return values;
  }
  std::vector<std::uint16_t> bits(kTableSize);
  std::transform(values.begin(), values.end(), bits.begin(), bf16_bits);
  return bits;
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

std::uint64_t hash(std::string_view text) {  // FNV-1a
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return value;
}

// Four elements from one random number, `first` being a multiple of 4.
template <typename T>
void look_up(const std::vector<T>& table,
             std::uint64_t key,
             std::uint64_t first,
             std::span<std::byte> out) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15U;
  std::uint64_t counter = key + (first / 4 + 1) * kGolden;
  std::array<T, 4> four = {};
  for (std::size_t at = 0; at < out.size(); at += sizeof(four)) {
    const std::uint64_t bits = mix(counter);
    counter += kGolden;
    four = {table[bits & 0xffffU], table[bits >> 16U & 0xffffU], table[bits >> 32U & 0xffffU],
            table[bits >> 48U]};
    std::memcpy(out.data() + at, four.data(), std::min(sizeof(four), out.size() - at));
  }
}

}  // namespace

void TensorFiller::fill(std::uint64_t begin, std::span<std::byte> out) const {
  std::visit(
      [&](const auto& table) {
        using Element = typename std::decay_t<decltype(table)>::value_type;
        look_up(table, key_, begin / sizeof(Element), out);
      },
      *table_);
}

TensorFiller WeightSource::filler(const ShardTensor& tensor) {
  const Spread spread = spread_of(tensor.role);
  std::uint64_t cols = tensor.shape.back();
  if (spread == Spread::kScale) {
    cols *= 32;
  }
  // A float32 and a bf16 tensor of one spread have different tables.
  const std::uint64_t type = tensor.dtype == DType::kF32 ? 1 : 0;
  auto& table = tables_[{static_cast<int>(spread), cols * 2 + type}];
  if (table == nullptr) {
    table = std::make_shared<const TensorFiller::Table>(make_table(spread, cols, tensor.dtype));
  }
  TensorFiller filler;
  filler.key_ = mix(mix(seed_) ^ hash(tensor.name));
  filler.table_ = table;
  return filler;
}

}  // namespace k3::tools
