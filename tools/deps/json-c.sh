# json-c: the JSON parser of the engine, static.  Built by its own CMake files, library only.
build() {
    cmake -S . -B out -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_C_FLAGS="$MUSL_CFLAGS -idirafter $KERNEL_HEADERS" \
        -DCMAKE_BUILD_TYPE=None -DCMAKE_INSTALL_PREFIX="$OUT" -DCMAKE_INSTALL_LIBDIR=lib \
        -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF -DBUILD_APPS=OFF -DDISABLE_WERROR=ON \
        -DDISABLE_EXTRA_LIBS=ON -DENABLE_RDRAND=OFF
    make -C out -j"$JOBS" install
}
