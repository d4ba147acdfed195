// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command fuzz finds every fuzz target of the module and runs each for a while. `go test -fuzz` takes one target of one
// package at a time; a list kept by hand would miss the next parser. It must not be imported.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	// By default a number of inputs: go test's own timer can end a target with "context deadline exceeded" although
	// nothing was found.
	length := flag.String("for", "5000x", "how long each target runs: inputs (5000x) or a time (30s)")
	match := flag.String("match", "", "only targets whose name contains this")
	flag.Parse()
	if err := run(*length, *match); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

type target struct{ pkg, name string }

func run(length, match string) error {
	targets, err := find()
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz targets found: the search is wrong")
	}
	for i, t := range targets {
		if !strings.Contains(t.name, match) {
			continue
		}
		start := time.Now()
		cmd := exec.Command("go", "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+length, t.pkg)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w\n%s", t.pkg, t.name, err, out)
		}
		fmt.Printf("fuzz %2d/%d %-32s %s in %.0fs\n", i+1, len(targets), t.name, strings.TrimPrefix(t.pkg, "github.com/koord-rt/koord-rt/"), time.Since(start).Seconds())
	}
	return nil
}

// find lists the packages that have a Fuzz function and asks the compiler for the names.
func find() ([]target, error) {
	list, err := exec.Command("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var out []target
	for line := range strings.Lines(string(list)) {
		pkg, dir, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		if exec.Command("grep", "-qsE", "^func Fuzz", "-r", "--include=*_test.go", dir).Run() != nil {
			continue
		}
		names, err := exec.Command("go", "test", "-list", "^Fuzz", pkg).Output()
		if err != nil {
			return nil, fmt.Errorf("list fuzz targets of %s: %w", pkg, err)
		}
		for name := range bytes.Lines(names) {
			if n := strings.TrimSpace(string(name)); strings.HasPrefix(n, "Fuzz") {
				out = append(out, target{pkg, n})
			}
		}
	}
	return out, nil
}
