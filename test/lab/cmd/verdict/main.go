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
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/verdict"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
		os.Exit(1)
	}
}

// run passes everything on as it comes, and tells at the end what failed; of a test run that cannot be read to its end, what failed
// until then.
func run(in io.Reader, out io.Writer) error {
	var all bytes.Buffer
	_, err := io.Copy(io.MultiWriter(out, &all), in)
	if err != nil {
		err = fmt.Errorf("pass on what the tests say: %w", err)
	}
	failed := verdict.Failed(all.String())
	if len(failed) == 0 {
		return err
	}
	summary := "\nWhat failed, and what each test said last:\n  " + strings.Join(failed, "\n  ") + "\n"
	if _, told := io.WriteString(out, summary); err == nil && told != nil {
		return fmt.Errorf("tell what failed: %w", told)
	}
	return err
}
