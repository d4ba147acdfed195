// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command verdict passes the output of `go test -v` on and repeats at its end what failed and why: the last lines of a lane are
// all that CI shows.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/koord-rt/koord-rt/test/lab/verdict"
)

func main() {
	var out bytes.Buffer
	if _, err := io.Copy(io.MultiWriter(os.Stdout, &out), os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
		os.Exit(1)
	}
	for i, line := range verdict.Failed(out.String()) {
		if i == 0 {
			fmt.Println("\nWhat failed, and what each test said last:")
		}
		fmt.Println("  " + line)
	}
}
