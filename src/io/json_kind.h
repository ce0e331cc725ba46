// JSON values as messages show them, for the readers that use simdjson.
#pragma once

#include <string>

namespace simdjson::dom {
class element;
}  // namespace simdjson::dom

namespace k3::io {

// "an object", "an array", "null", a number or a string as it stands, made printable.
[[nodiscard]] std::string json_kind(const simdjson::dom::element& value);

}  // namespace k3::io
