// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build !linux

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "demo: this is %s; cgroups and containers are Linux'.\n"+
		"What to do: run `make demo` as root on a Linux machine or in a Linux VM (Debian 12 or later, Go, gcc).\n", runtime.GOOS)
	os.Exit(1)
}
