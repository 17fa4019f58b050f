// Whether two declarations of a C function are called alike.
#pragma once

#include <type_traits>

namespace tessera {

// Types that a call passes alike: the same, or pointers to structs, or enums and integers of one
// width, or structs of one size.
template <class A, class B>
constexpr bool SameForCalls() {
  using X = std::remove_cv_t<A>;
  using Y = std::remove_cv_t<B>;
  if constexpr (std::is_same_v<X, Y>) {
    return true;
  } else if constexpr (std::is_pointer_v<X> && std::is_pointer_v<Y>) {
    using P = std::remove_pointer_t<X>;
    using Q = std::remove_pointer_t<Y>;
    if constexpr (std::is_const_v<P> != std::is_const_v<Q>) return false;
    if constexpr (std::is_class_v<P> && std::is_class_v<Q>) return true;
    if constexpr (std::is_function_v<P> || std::is_void_v<P> || std::is_void_v<Q>) return false;
    if constexpr (!std::is_class_v<P> && !std::is_class_v<Q>) return SameForCalls<P, Q>();
    return false;
  } else if constexpr ((std::is_enum_v<X> || std::is_integral_v<X>)&&(std::is_enum_v<Y> ||
                                                                      std::is_integral_v<Y>)) {
    return sizeof(X) == sizeof(Y);
  } else {
    return std::is_class_v<X> && std::is_class_v<Y> && sizeof(X) == sizeof(Y);
  }
}

template <class F, class G>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameFunction<R(A...), S(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) {
      return false;
    } else {
      return SameForCalls<R, S>() && (SameForCalls<A, B>() && ...);
    }
  }();
};

}  // namespace tessera
