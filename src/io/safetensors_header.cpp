#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "k3/errors.h"

#include "base/printable.h"
#include "io/huge_integer.h"
#include "io/json_kind.h"
#include "io/safetensors_types.h"
#include <simdjson.h>

namespace k3::io {
namespace {

namespace dom = simdjson::dom;

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::uint64_t kLengthBytes = 8;  // the header's length precedes it
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kLfsPointer = "version https://git-lfs";

}  // namespace

class SafetensorsHeader::Parser {
 public:
  std::span<const HeaderTensor> read(File& file);

  std::span<const HeaderTensor> parse(std::string_view json,
                                      std::uint64_t file_bytes,
                                      std::string_view where);

 private:
  // Where a tensor's shape lies in shapes_ until that has stopped growing.
  struct ShapeRange {
    std::size_t begin = 0;
    std::size_t rank = 0;
  };

  struct Entry {
    std::optional<dom::element> dtype;
    std::optional<dom::element> shape;
    std::optional<dom::element> offsets;
  };

  std::uint64_t header_length(File& file);
  std::span<const HeaderTensor> parse_buffer(std::size_t json_bytes);
  dom::object parse_json(std::size_t json_bytes);
  void reserve_buffer(std::size_t json_bytes);
  void read_entry(std::string_view name, const dom::element& value);
  [[nodiscard]] Entry split_entry(std::string_view name, const dom::element& value) const;
  ShapeRange read_shape(std::string_view name, const dom::element& value);
  void read_offsets(HeaderTensor& tensor, const dom::element& value) const;
  [[nodiscard]] std::uint64_t whole_number(std::string_view name,
                                           std::string_view what,
                                           const dom::element& value) const;
  void check_size(const HeaderTensor& tensor) const;
  void check_unique();
  void check_overlap();

  // `tensor` may be empty.
  [[noreturn]] void refuse(std::string_view tensor,
                           std::string_view what,
                           const std::string& expected,
                           const std::string& found) const;

  dom::parser json_;
  std::vector<char> buffer_;  // a header and the padding that the JSON parser wants
  std::string where_;
  std::uint64_t data_begin_ = 0;  // offset of the data in the file
  std::uint64_t data_bytes_ = 0;  // bytes of the file after the header
  std::vector<HeaderTensor> tensors_;
  std::vector<ShapeRange> shape_ranges_;                      // [tensor]
  std::vector<std::uint64_t> shapes_;                         // of all tensors, one after the other
  std::vector<std::pair<std::size_t, std::uint32_t>> order_;  // scratch: sort key, tensor
};

void SafetensorsHeader::Parser::refuse(std::string_view tensor,
                                       std::string_view what,
                                       const std::string& expected,
                                       const std::string& found) const {
  std::string place = where_;
  if (!tensor.empty()) {
    place += ": " + printable(tensor);
  }
  throw Error(
      ErrorKind::kCheckpoint,
      ErrorDetail{.what = std::string(what), .where = place, .expected = expected, .found = found});
}

void SafetensorsHeader::Parser::reserve_buffer(std::size_t json_bytes) {
  const std::size_t needed = json_bytes + simdjson::SIMDJSON_PADDING;
  if (buffer_.size() < needed) {
    buffer_.clear();  // nothing to copy while growing
    buffer_.resize(needed);
  }
}

std::uint64_t SafetensorsHeader::Parser::header_length(File& file) {
  const std::uint64_t size = file.size();
  if (size == 0) {
    refuse("", "empty file", "a safetensors file", "0 bytes");
  }
  std::array<char, kLfsPointer.size()> start = {};
  const auto start_bytes = static_cast<std::size_t>(std::min<std::uint64_t>(size, start.size()));
  read_exact(file, 0, std::as_writable_bytes(std::span(start).first(start_bytes)),
             ErrorKind::kCheckpoint);
  if (std::string_view(start.data(), start_bytes) == kLfsPointer) {
    refuse("", "not downloaded", "a safetensors file",
           "a Git LFS pointer of " + std::to_string(size) + " bytes");
  }
  if (size < kLengthBytes) {
    refuse("", "truncated", "at least 8 bytes of header length", std::to_string(size) + " bytes");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, start.data(), sizeof(length));
  if (length > size - kLengthBytes) {
    refuse("", "header longer than the file",
           "at most " + std::to_string(size - kLengthBytes) + " bytes",
           std::to_string(length) + " bytes");
  }
  if (length < 2 || length > kMaxHeaderBytes) {
    refuse("", "bad header length", "2 to " + std::to_string(kMaxHeaderBytes) + " bytes",
           std::to_string(length) + " bytes");
  }
  return length;
}

std::span<const HeaderTensor> SafetensorsHeader::Parser::read(File& file) {
  where_ = file.path().string();
  const auto length = static_cast<std::size_t>(header_length(file));
  data_begin_ = kLengthBytes + length;
  data_bytes_ = file.size() - data_begin_;
  reserve_buffer(length);
  read_exact(file, kLengthBytes, std::as_writable_bytes(std::span(buffer_).first(length)),
             ErrorKind::kCheckpoint);
  return parse_buffer(length);
}

std::span<const HeaderTensor> SafetensorsHeader::Parser::parse(std::string_view json,
                                                               std::uint64_t file_bytes,
                                                               std::string_view where) {
  where_ = where;
  data_begin_ = kLengthBytes + json.size();
  if (file_bytes < data_begin_) {
    refuse("", "header longer than the file", "at most " + std::to_string(file_bytes) + " bytes",
           std::to_string(data_begin_) + " bytes");
  }
  data_bytes_ = file_bytes - data_begin_;
  reserve_buffer(json.size());
  std::copy(json.begin(), json.end(), buffer_.begin());
  return parse_buffer(json.size());
}

dom::object SafetensorsHeader::Parser::parse_json(std::size_t json_bytes) {
  dom::element document;
  const simdjson::error_code fault =
      json_.parse(buffer_.data(), json_bytes, /*realloc_if_needed=*/false).get(document);
  if (fault == simdjson::NUMBER_ERROR) {
    const auto bad = find_huge_integer(std::string_view(buffer_.data(), json_bytes));
    if (bad.has_value()) {
      refuse(bad->key, "number too large", "a whole number below 2^64", printable(bad->digits, 40));
    }
  }
  if (fault != simdjson::SUCCESS) {
    refuse("", "header is not valid JSON", "a JSON object", simdjson::error_message(fault));
  }
  dom::object object;
  if (document.get(object) != simdjson::SUCCESS) {
    refuse("", "header is not a JSON object", "an object", json_kind(document));
  }
  return object;
}

std::span<const HeaderTensor> SafetensorsHeader::Parser::parse_buffer(std::size_t json_bytes) {
  tensors_.clear();
  shape_ranges_.clear();
  shapes_.clear();
  bool metadata_seen = false;
  for (const dom::key_value_pair field : parse_json(json_bytes)) {
    if (field.key != kMetadata) {
      read_entry(field.key, field.value);
    } else if (std::exchange(metadata_seen, true)) {
      refuse(kMetadata, "duplicate key", "it once", "it twice");
    }
  }
  for (std::size_t index = 0; index < tensors_.size(); ++index) {
    const ShapeRange& range = shape_ranges_[index];
    tensors_[index].shape = std::span(shapes_).subspan(range.begin, range.rank);
    check_size(tensors_[index]);
  }
  check_unique();
  check_overlap();
  return tensors_;
}

SafetensorsHeader::Parser::Entry SafetensorsHeader::Parser::split_entry(
    std::string_view name, const dom::element& value) const {
  dom::object fields;
  if (value.get(fields) != simdjson::SUCCESS) {
    refuse(name, "bad entry", "an object with dtype, shape and data_offsets", json_kind(value));
  }
  Entry entry;
  for (const dom::key_value_pair field : fields) {
    std::optional<dom::element>* slot = nullptr;
    if (field.key == "dtype") {
      slot = &entry.dtype;
    } else if (field.key == "shape") {
      slot = &entry.shape;
    } else if (field.key == "data_offsets") {
      slot = &entry.offsets;
    } else {
      continue;
    }
    if (slot->has_value()) {
      refuse(name, "duplicate key in the entry", std::string(field.key) + " once", "it twice");
    }
    *slot = field.value;
  }
  std::string missing;
  missing += entry.dtype.has_value() ? "" : " dtype";
  missing += entry.shape.has_value() ? "" : " shape";
  missing += entry.offsets.has_value() ? "" : " data_offsets";
  if (!missing.empty()) {
    refuse(name, "incomplete entry", "dtype, shape and data_offsets", "no" + missing);
  }
  return entry;
}

void SafetensorsHeader::Parser::read_entry(std::string_view name, const dom::element& value) {
  const Entry entry = split_entry(name, value);
  HeaderTensor tensor;
  tensor.name = name;
  if (entry.dtype->get(tensor.dtype_text) != simdjson::SUCCESS) {
    refuse(name, "bad dtype", "a string", json_kind(*entry.dtype));
  }
  tensor.dtype = dtype_from_name(tensor.dtype_text);
  shape_ranges_.push_back(read_shape(name, *entry.shape));
  read_offsets(tensor, *entry.offsets);
  tensors_.push_back(tensor);
}

std::uint64_t SafetensorsHeader::Parser::whole_number(std::string_view name,
                                                      std::string_view what,
                                                      const dom::element& value) const {
  std::uint64_t number = 0;
  // Doubles are refused even when whole: beyond 2^53 they are no exact offsets.
  if (value.get(number) != simdjson::SUCCESS) {
    refuse(name, what, "a whole number not below 0", json_kind(value));
  }
  return number;
}

SafetensorsHeader::Parser::ShapeRange SafetensorsHeader::Parser::read_shape(
    std::string_view name, const dom::element& value) {
  dom::array extents;
  if (value.get(extents) != simdjson::SUCCESS) {
    refuse(name, "bad shape", "an array", json_kind(value));
  }
  ShapeRange range{.begin = shapes_.size(), .rank = 0};
  for (const dom::element extent : extents) {
    shapes_.push_back(whole_number(name, "bad shape", extent));
  }
  range.rank = shapes_.size() - range.begin;
  return range;
}

void SafetensorsHeader::Parser::read_offsets(HeaderTensor& tensor,
                                             const dom::element& value) const {
  dom::array pair;
  if (value.get(pair) != simdjson::SUCCESS) {
    refuse(tensor.name, "bad data_offsets", "[begin, end]", json_kind(value));
  }
  std::array<std::uint64_t, 2> ends = {};
  std::size_t count = 0;
  for (const dom::element offset : pair) {
    const std::uint64_t number = whole_number(tensor.name, "bad data_offsets", offset);
    if (count < ends.size()) {
      ends[count] = number;
    }
    ++count;
  }
  if (count != ends.size()) {
    refuse(tensor.name, "bad data_offsets", "[begin, end]", std::to_string(count) + " numbers");
  }
  const auto [begin, end] = ends;
  if (begin > end) {
    refuse(tensor.name, "reversed data_offsets", "begin not above end",
           "[" + std::to_string(begin) + ", " + std::to_string(end) + "]");
  }
  if (end > data_bytes_) {
    refuse(tensor.name, "truncated file or data_offsets beyond its end",
           std::to_string(end) + " bytes after the header",
           std::to_string(data_bytes_) + " bytes (" + std::to_string(data_begin_ + data_bytes_) +
               " in the whole file)");
  }
  tensor.offset = data_begin_ + begin;
  tensor.nbytes = end - begin;
}

void SafetensorsHeader::Parser::check_size(const HeaderTensor& tensor) const {
  const std::uint64_t element = element_bytes(tensor.dtype, tensor.dtype_text);
  const auto bytes = tensor_bytes(tensor.shape, std::max<std::uint64_t>(element, 1));
  if (!bytes.has_value()) {
    refuse(tensor.name, "shape too large", "a size below 2^64 bytes", "a product that overflows");
  }
  if (element != 0 && *bytes != tensor.nbytes) {
    refuse(tensor.name, "data_offsets disagree with shape and dtype",
           std::to_string(*bytes) + " bytes", std::to_string(tensor.nbytes) + " bytes");
  }
}

// Names within one file. Equal hashes are compared as text, so a collision costs time only.
void SafetensorsHeader::Parser::check_unique() {
  order_.clear();
  for (std::size_t index = 0; index < tensors_.size(); ++index) {
    order_.emplace_back(std::hash<std::string_view>{}(tensors_[index].name),
                        static_cast<std::uint32_t>(index));
  }
  std::sort(order_.begin(), order_.end());
  for (std::size_t first = 0; first < order_.size(); ++first) {
    for (std::size_t other = first + 1;
         other < order_.size() && order_[other].first == order_[first].first; ++other) {
      const HeaderTensor& tensor = tensors_[order_[first].second];
      if (tensor.name == tensors_[order_[other].second].name) {
        refuse(tensor.name, "duplicate tensor name", "it once in the file", "it twice");
      }
    }
  }
}

void SafetensorsHeader::Parser::check_overlap() {
  order_.clear();
  for (std::size_t index = 0; index < tensors_.size(); ++index) {
    if (tensors_[index].nbytes != 0) {  // an empty tensor covers no byte
      order_.emplace_back(tensors_[index].offset, static_cast<std::uint32_t>(index));
    }
  }
  std::sort(order_.begin(), order_.end());
  for (std::size_t next = 1; next < order_.size(); ++next) {
    const HeaderTensor& before = tensors_[order_[next - 1].second];
    const HeaderTensor& tensor = tensors_[order_[next].second];
    const std::uint64_t free_from = before.offset + before.nbytes;
    if (tensor.offset < free_from) {
      refuse(tensor.name, "data overlaps that of " + printable(before.name),
             "begin at " + std::to_string(free_from - data_begin_) + " or later",
             "begin at " + std::to_string(tensor.offset - data_begin_));
    }
  }
}

SafetensorsHeader::SafetensorsHeader() : parser_(std::make_unique<Parser>()) {}

SafetensorsHeader::~SafetensorsHeader() = default;

std::span<const HeaderTensor> SafetensorsHeader::read(File& file) {
  return parser_->read(file);
}

std::span<const HeaderTensor> SafetensorsHeader::parse(std::string_view json,
                                                       std::uint64_t file_bytes,
                                                       std::string_view where) {
  return parser_->parse(json, file_bytes, where);
}

}  // namespace k3::io
