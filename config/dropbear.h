/*
 * dropbear: what differs from its default_options.h, with reasons.  Built as localoptions.h by
 * tools/deps/dropbear.sh.  SSH here leads to the admin console and to nothing else.
 *
 * With these options the argv must not hold -s -g -j -k -t (their subjects are compiled out):
 * dropbear then prints its usage and ends, and init would start it for ever.
 */

/* Keys only: there is no password on the box to guess.  -B, for a box without keys, is kept by
   tools/deps/dropbear.sh. */
#define DROPBEAR_SVR_PASSWORD_AUTH 0
#define DROPBEAR_SVR_PUBKEY_AUTH   1
/* `restrict`, `command=` and friends in authorized_keys narrow a key further. */
#define DROPBEAR_SVR_PUBKEY_OPTIONS 1

/* One signature algorithm, for the host and for operators: small, fast, without parameters to get
   wrong.  Keys on a hardware token (sk-ssh-ed25519) are the same algorithm. */
#define DROPBEAR_ED25519 1
#define DROPBEAR_SK_KEYS 1
#define DROPBEAR_RSA     0
#define DROPBEAR_ECDSA   0
#define DROPBEAR_DSS     0

/* Key exchange: X25519 alone and in its two post-quantum hybrids; OpenSSH 9 prefers the latter. */
#define DROPBEAR_CURVE25519        1
#define DROPBEAR_SNTRUP761         1
#define DROPBEAR_MLKEM768          1
#define DROPBEAR_ECDH              0
#define DROPBEAR_DH_GROUP14_SHA256 0
#define DROPBEAR_DH_GROUP14_SHA1   0
#define DROPBEAR_DH_GROUP16        0
#define DROPBEAR_DH_GROUP1         0

/* Every OpenSSH since 6.5 speaks the first; counter mode with HMAC is the fallback. */
#define DROPBEAR_CHACHA20POLY1305 1
#define DROPBEAR_ENABLE_CTR_MODE  1
#define DROPBEAR_AES256           1
#define DROPBEAR_AES128           0
#define DROPBEAR_SHA2_256_HMAC    1

/* No way through the box to anywhere else. */
#define DROPBEAR_X11FWD             0
#define DROPBEAR_SVR_AGENTFWD       0
#define DROPBEAR_SVR_LOCALTCPFWD    0
#define DROPBEAR_SVR_REMOTETCPFWD   0
#define DROPBEAR_SVR_LOCALSTREAMFWD 0
#define DROPBEAR_SFTPSERVER         0

/* Started by init as a daemon; a host key is made by init before, where its failure shows. */
#define INETD_MODE             0
#define DROPBEAR_DELAY_HOSTKEY 0

/* Nothing to print before the console's own greeting. */
#define DO_MOTD 0

/* A few operators at most; more open handshakes than this are someone knocking. */
#define MAX_UNAUTH_PER_IP  5
#define MAX_UNAUTH_CLIENTS 10
/* With keys alone, more tries are an agent offering every key it has. */
#define MAX_AUTH_TRIES 6

/* A vanished terminal gives its console back: 3 lost keepalives a minute apart. */
#define DEFAULT_KEEPALIVE 60
/* An hour without a key typed. */
#define DEFAULT_IDLE_TIMEOUT 3600

#define DEFAULT_PATH      "/bin"
#define DEFAULT_ROOT_PATH "/bin"
