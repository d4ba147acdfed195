// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command fuzz finds every fuzz target of the module and runs each for a while. `go test -fuzz` takes one target of one
// package at a time and links it anew; a list kept by hand would miss the next parser. Input: the module in the present
// folder. Output: a line per target, and a failing input where `go test -fuzz` puts it. It must not be imported.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// minimize bounds how often the fuzzer tries to shorten an input that reaches new code. Its default is a minute for
// each, in which no new input is tried.
const minimize = "100x"

func main() {
	// By default a number of inputs: go test's own timer can end a target with "context deadline exceeded" although
	// nothing was found.
	length := flag.String("for", "5000x", "how long each target runs: inputs (5000x) or a time (30s)")
	match := flag.String("match", "", "only targets whose name contains this")
	flag.Parse()
	if err := run(context.Background(), *length, *match); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// suite is one package with fuzz targets.
type suite struct{ pkg, dir, binary string }

// target is one fuzz function.
type target struct {
	suite
	name string
}

func run(ctx context.Context, length, match string) error {
	work, err := os.MkdirTemp(os.Getenv("GOTMPDIR"), "koord-rt-fuzz-") // not where the targets' files go, which may be memory
	if err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	defer os.RemoveAll(work)
	suites, err := find(ctx)
	if err != nil {
		return err
	}
	if suites, err = build(ctx, work, suites); err != nil {
		return err
	}
	targets, err := list(ctx, suites)
	if err != nil {
		return err
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("find go's cache: %w", err)
	}
	return runAll(ctx, targets, match, length, filepath.Join(strings.TrimSpace(string(cache)), "fuzz"))
}

// find lists the packages whose tests define a function Fuzz….
func find(ctx context.Context) ([]suite, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{"\t"}}{{.Dir}}{{end}}`
	out, err := exec.CommandContext(ctx, "go", "list", "-f", format, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var suites []suite
	for line := range strings.Lines(string(out)) {
		pkg, dir, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		fuzzed, err := hasTarget(dir)
		if err != nil {
			return nil, err
		}
		if fuzzed {
			suites = append(suites, suite{pkg: pkg, dir: dir})
		}
	}
	if len(suites) == 0 {
		return nil, errors.New("no fuzz targets found: the search is wrong")
	}
	return suites, nil
}

func hasTarget(dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return false, fmt.Errorf("list tests of %s: %w", dir, err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return false, fmt.Errorf("read tests: %w", err)
		}
		if bytes.Contains(src, []byte("\nfunc Fuzz")) {
			return true, nil
		}
	}
	return false, nil
}

// build compiles each package's tests once, instrumented as `go test -fuzz` does for this module's packages. The standard library
// and other modules are left as they are: their coverage does not lead to a parser of ours, and the Kubernetes libraries alone would
// take minutes to build anew.
func build(ctx context.Context, work string, suites []suite) ([]suite, error) {
	// go test names the programs after the last element of the path: packages of one name go to different folders.
	folders := map[string][]string{}
	count := map[string]int{}
	built := make([]suite, 0, len(suites))
	for _, s := range suites {
		base := filepath.Base(s.pkg)
		dir := filepath.Join(work, fmt.Sprint(count[base]))
		count[base]++
		folders[dir] = append(folders[dir], s.pkg)
		s.binary = filepath.Join(dir, base+".test")
		built = append(built, s)
	}
	for i := range len(folders) {
		dir := filepath.Join(work, fmt.Sprint(i))
		args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-gcflags=./...=-d=libfuzzer", "-o", dir + "/"}, folders[dir]...)
		if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build fuzz targets: %w\n%s", err, out)
		}
	}
	return built, nil
}

// list asks the programs for the names of their targets.
func list(ctx context.Context, suites []suite) ([]target, error) {
	var targets []target
	for _, s := range suites {
		cmd := exec.CommandContext(ctx, s.binary, "-test.list", "^Fuzz")
		cmd.Dir = s.dir
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("list fuzz targets of %s: %w", s.pkg, err)
		}
		for _, name := range strings.Fields(string(out)) {
			targets = append(targets, target{s, name})
		}
	}
	return targets, nil
}

// runAll runs the targets, as many at a time as there are CPUs, each with one worker. Every failure is reported.
func runAll(ctx context.Context, targets []target, match, length, cache string) error {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		fails []error
		done  int
	)
	room := make(chan struct{}, runtime.NumCPU())
	for _, t := range targets {
		if !strings.Contains(t.name, match) {
			continue
		}
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			start := time.Now()
			err := t.fuzz(ctx, length, cache)
			mu.Lock()
			defer mu.Unlock()
			done++
			if err != nil {
				fails = append(fails, err)
				return
			}
			fmt.Printf("fuzz %2d/%d %-32s %s in %.0fs\n", done, len(targets), t.name,
				strings.TrimPrefix(t.pkg, "github.com/koord-rt/koord-rt/"), time.Since(start).Seconds())
		})
	}
	wait.Wait()
	return errors.Join(fails...)
}

func (t target) fuzz(ctx context.Context, length, cache string) error {
	cmd := exec.CommandContext(ctx, t.binary, "-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.fuzztime="+length,
		"-test.fuzzminimizetime="+minimize, "-test.parallel=1", "-test.fuzzcachedir="+filepath.Join(cache, t.pkg))
	cmd.Dir = t.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", t.pkg, t.name, err, out)
	}
	if bytes.Contains(out, []byte("not built with coverage instrumentation")) {
		return fmt.Errorf("%s %s: no coverage instrumentation\n%s", t.pkg, t.name, out)
	}
	return nil
}
