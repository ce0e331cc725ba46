#include "io/json_kind.h"

#include "base/printable.h"
#include <simdjson.h>

namespace k3::io {

namespace dom = simdjson::dom;

std::string json_kind(const dom::element& value) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::INT64:
      return std::to_string(value.get_int64().value_unsafe());
    case dom::element_type::UINT64:
      return std::to_string(value.get_uint64().value_unsafe());
    case dom::element_type::DOUBLE:
      return "the fractional number " + std::to_string(value.get_double().value_unsafe());
    case dom::element_type::STRING:
      return "the string \"" + printable(value.get_string().value_unsafe(), 80) + "\"";
    case dom::element_type::BOOL:
      return value.get_bool().value_unsafe() ? "true" : "false";
    case dom::element_type::NULL_VALUE:
      return "null";
  }
  return "another type";
}

}  // namespace k3::io
