// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Options of one run.
type Options struct {
	Cache           *parts.Cache // required (set by Lab.Run)
	Work            string       // required (set by Lab.Run): existing empty folder for reports and temporary files
	RuntimeEndpoint string       // required: path of the RuntimeService socket
	ImageEndpoint   string       // optional: path of the ImageService socket; default RuntimeEndpoint
	Focus           []string     // optional: regular expressions of spec names to run
	Skip            []string     // optional: regular expressions of spec names not to run
	Parallel        int          // optional: processes, default 4; specs mostly wait
}

const defaultParallel = 4

// Run runs critest's validation specs. Specs that fail are in the result, not an error; an error
// is a run that did not come to its end. critest runs in the network namespace of
// the calling thread.
func Run(ctx context.Context, o Options) (Result, error) {
	dir, err := o.Cache.Get(ctx, parts.Critest)
	if err != nil {
		return Result{}, err
	}
	// ginkgo takes a compiled suite by this suffix.
	suite := filepath.Join(o.Work, "critest.test")
	if err := os.Symlink(filepath.Join(dir, "critest"), suite); err != nil {
		return Result{}, fmt.Errorf("run critest: %w", err)
	}
	report := filepath.Join(o.Work, "report.json")
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "ginkgo"), o.arguments(suite, report)...)
	cmd.Dir = o.Work
	cmd.Env = append(os.Environ(), "TMPDIR="+o.Work)
	// The whole group is stopped: ginkgo's children too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	runErr := cmd.Run()
	took := time.Since(start)
	if err := os.WriteFile(filepath.Join(o.Work, "output.txt"), out.Bytes(), 0o644); err != nil {
		return Result{}, fmt.Errorf("keep output of critest: %w", err)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		return Result{}, fmt.Errorf("run critest: %w; end of its output:\n%s", errors.Join(runErr, err), last(out.Bytes(), 3000))
	}
	r, err := parseReport(data)
	if err != nil {
		return Result{}, err
	}
	r.Took = took
	return r, ctx.Err()
}

// arguments of ginkgo: its own, the suite, and critest's after "--".
func (o Options) arguments(suite, report string) []string {
	procs, image := o.Parallel, o.ImageEndpoint
	if procs == 0 {
		procs = defaultParallel
	}
	if image == "" {
		image = o.RuntimeEndpoint
	}
	args := []string{
		"--procs=" + strconv.Itoa(procs), "--no-color", "--json-report=" + filepath.Base(report), "--output-dir=" + filepath.Dir(report),
		"--skip=benchmark", // measurements, not specs
	}
	for _, f := range o.Focus {
		args = append(args, "--focus="+f)
	}
	for _, s := range o.Skip {
		args = append(args, "--skip="+s)
	}
	return append(args, suite, "--", "-runtime-endpoint=unix://"+o.RuntimeEndpoint, "-image-endpoint=unix://"+image)
}

func last(text []byte, n int) []byte {
	if len(text) > n {
		return text[len(text)-n:]
	}
	return text
}
