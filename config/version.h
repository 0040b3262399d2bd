/* The version of this tree, stated once. */
#ifndef V4BOX_CONFIG_VERSION_H
#define V4BOX_CONFIG_VERSION_H

#define V4BOX_VERSION "0.1.0"

#endif
