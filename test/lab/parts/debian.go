// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// InstallDebian makes sure that Debian packages are installed. Missing ones are
// installed with apt-get after an update, which needs root; without root the error
// names the command to run.
func (c *Cache) InstallDebian(ctx context.Context, packages ...string) error {
	if len(missingDebian(ctx, packages)) == 0 {
		return nil
	}
	unlock, err := c.Lock(ctx, "apt")
	if err != nil {
		return err
	}
	defer unlock()
	missing := missingDebian(ctx, packages)
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, " ")
	if os.Geteuid() != 0 {
		return fmt.Errorf("debian packages missing: %s; run as root: apt-get update && apt-get install %s", list, list)
	}
	c.Printf("apt: installing %s", list)
	start := time.Now()
	for _, args := range [][]string{
		{"update", "-qq"},
		append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...),
	} {
		args = append([]string{"-o", "DPkg::Lock::Timeout=120"}, args...)
		if err := runQuiet(ctx, "", []string{"DEBIAN_FRONTEND=noninteractive"}, "apt-get", args...); err != nil {
			return fmt.Errorf("install debian packages %s: %w", list, err)
		}
	}
	c.Printf("apt: installed %s after %s", list, time.Since(start).Round(100*time.Millisecond))
	return nil
}

func missingDebian(ctx context.Context, packages []string) []string {
	var missing []string
	for _, p := range packages {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", p).Output()
		if err != nil || string(out) != "installed" {
			missing = append(missing, p)
		}
	}
	return missing
}

// runQuiet runs a program with extra environment; its output is shown only in the
// error, its last 4 KiB.
func runQuiet(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		text := out.Bytes()
		if len(text) > 4096 {
			text = text[len(text)-4096:]
		}
		return fmt.Errorf("run %s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(text))
	}
	return nil
}
