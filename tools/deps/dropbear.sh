# dropbear: the SSH server and dropbearkey in one static program (told apart by argv[0]).
INPUTS=config/dropbear.h

build() {
    cp "$ROOT/config/dropbear.h" localoptions.h
    # -B, which lets in users with an empty password, goes without passwords as well: a box that nobody
    # has claimed has one such user, and no other way in.
    grep -q "case 'B':" src/svr-runopts.c
    sed -i "/case 'B':/,/break;/d; /case 'h':/i\\case 'B': svr_opts.allowblankpass = 1; break;" src/svr-runopts.c
    # No zlib: compression before authentication is attack surface, and the console prints little.
    # No lastlog, utmp, wtmp: nobody reads them here.  Syslog stays in: without it -E is refused, the
    # option that sends the log to standard error, where init collects it.
    ./configure CC="$MUSL_CC" CFLAGS="$MUSL_CFLAGS" --enable-static --enable-bundled-libtom \
        --disable-zlib --disable-pam --disable-lastlog --disable-utmp \
        --disable-utmpx --disable-wtmp --disable-wtmpx --disable-loginfunc --disable-pututline \
        --disable-pututxline --disable-harden
    make -j"$JOBS" PROGRAMS="dropbear dropbearkey" MULTI=1 STATIC=1
    install -Dsm755 dropbearmulti "$OUT/bin/dropbearmulti"
}
