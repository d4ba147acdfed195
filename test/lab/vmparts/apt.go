// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// archive is a private apt: own sources, lists, cache and an empty dpkg status, so that the host's packages neither
// matter nor change.
type archive struct {
	dir  string
	args []string
}

// openArchive prepares a private apt in dir for the given suites and fetches their lists. The first suite is the base
// one; packages are taken from the last suite that has them.
func openArchive(ctx context.Context, dir string, suites ...string) (archive, error) {
	if !exists(debianKeyring) {
		return archive{}, fmt.Errorf("open Debian archive: %s is missing (package debian-archive-keyring)", debianKeyring)
	}
	mirror, err := debianMirror(ctx)
	if err != nil {
		return archive{}, err
	}
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "empty", "log"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return archive{}, fmt.Errorf("prepare apt folder: %w", err)
		}
	}
	var sources strings.Builder
	for _, suite := range suites {
		fmt.Fprintf(&sources, "deb [arch=amd64 signed-by=%s] %s %s main\n", debianKeyring, mirror, suite)
	}
	a := archive{dir: dir, args: []string{
		"-q",
		"-o", "Dir::Etc::sourcelist=" + dir + "/sources.list",
		"-o", "Dir::Etc::sourceparts=" + dir + "/empty",
		"-o", "Dir::Etc::preferences=" + dir + "/empty/none",
		"-o", "Dir::Etc::preferencesparts=" + dir + "/empty",
		"-o", "Dir::State=" + dir,
		"-o", "Dir::State::status=" + dir + "/status",
		"-o", "Dir::Cache=" + dir + "/cache",
		"-o", "Dir::Log=" + dir + "/log",
		"-o", "APT::Architecture=amd64",
		"-o", "APT::Architectures=amd64",
		"-o", "APT::Sandbox::User=",
		"-o", "APT::Default-Release=" + suites[len(suites)-1],
		"-o", "APT::Install-Recommends=false",
		"-o", "Acquire::Languages=none",
		"-o", "Acquire::Retries=3",
		"-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-o", "Debug::NoLocking=true",
	}}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "sources.list"), []byte(sources.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "status"), nil, 0o644),
	)
	if err != nil {
		return archive{}, fmt.Errorf("prepare apt folder: %w", err)
	}
	if _, err := a.run(ctx, "apt-get", "update"); err != nil {
		return archive{}, err
	}
	return a, nil
}

func (a archive) run(ctx context.Context, tool string, args ...string) (string, error) {
	return runTool(ctx, a.dir, tool, append(slices.Clone(a.args), args...)...)
}

// dependency follows a meta-package: it returns the package that meta depends on and whose name starts with prefix.
func (a archive) dependency(ctx context.Context, meta, prefix string) (string, error) {
	out, err := a.run(ctx, "apt-cache", "depends", meta)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if kind == "Depends" && strings.HasPrefix(name, prefix) {
			return name, nil
		}
	}
	return "", fmt.Errorf("resolve %s: no dependency starts with %q", meta, prefix)
}

// has says whether the archive carries a package.
func (a archive) has(ctx context.Context, name string) (bool, error) {
	out, err := a.run(ctx, "apt-cache", "pkgnames", name)
	if err != nil {
		return false, err
	}
	return slices.Contains(strings.Fields(out), name), nil
}

// unpack downloads exactly the named packages and unpacks them into dir.
func (a archive) unpack(ctx context.Context, dir string, names ...string) error {
	into := filepath.Join(a.dir, "download")
	if err := os.MkdirAll(into, 0o755); err != nil {
		return fmt.Errorf("create download folder: %w", err)
	}
	args := append(slices.Clone(a.args), append([]string{"download"}, names...)...)
	if _, err := runTool(ctx, into, "apt-get", args...); err != nil {
		return err
	}
	return unpackAll(ctx, into, dir)
}

// unpackClosure unpacks the named packages and everything they depend on, the C library included.
func (a archive) unpackClosure(ctx context.Context, dir string, names ...string) error {
	args := append([]string{"install", "-y", "--download-only"}, names...)
	if _, err := a.run(ctx, "apt-get", args...); err != nil {
		return err
	}
	return unpackAll(ctx, filepath.Join(a.dir, "cache", "archives"), dir)
}

// unpackAll unpacks every package file of a folder and removes it.
func unpackAll(ctx context.Context, from, into string) error {
	debs, err := filepath.Glob(filepath.Join(from, "*.deb"))
	if err != nil || len(debs) == 0 {
		return errors.Join(fmt.Errorf("unpack packages: none in %s", from), err)
	}
	for _, deb := range debs {
		if _, err := runTool(ctx, from, "dpkg-deb", "-x", deb, into); err != nil {
			return err
		}
		if err := os.Remove(deb); err != nil {
			return fmt.Errorf("remove package: %w", err)
		}
	}
	return nil
}

// debianMirror takes the mirror of the host's own apt configuration, so no host name is fixed here. Hosts that are not
// Debian set KOORD_RT_DEBIAN_MIRROR.
func debianMirror(ctx context.Context) (string, error) {
	if m := os.Getenv("KOORD_RT_DEBIAN_MIRROR"); m != "" {
		return m, nil
	}
	// Printed even where the host's package lists have been removed, as in most container images.
	out, err := runTool(ctx, "/", "apt-get", "-o", "Debug::NoLocking=true", "update", "--print-uris")
	if err != nil {
		return "", err
	}
	return mirrorOf(out)
}

// mirrorOf finds the first Debian suite in lines of the form 'MIRROR/dists/SUITE/InRelease' FILE SIZE. Security and
// update suites live elsewhere or carry a suffix, other vendors' suites have other names.
func mirrorOf(uris string) (string, error) {
	suites := []string{"bullseye", "bookworm", "trixie", "forky", "sid", "oldstable", "stable", "testing", "unstable"}
	for line := range strings.Lines(uris) {
		uri, _, _ := strings.Cut(strings.TrimPrefix(line, "'"), "'")
		mirror, rest, ok := strings.Cut(uri, "/dists/")
		suite, isRelease := strings.CutSuffix(rest, "/InRelease")
		if ok && isRelease && slices.Contains(suites, suite) {
			return mirror, nil
		}
	}
	return "", errors.New("find Debian mirror: no Debian suite in the host's apt sources, set KOORD_RT_DEBIAN_MIRROR")
}

// runTool runs a command in dir and returns its stdout; an error carries the end of its stderr.
func runTool(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tail := stderr.String()
		if len(tail) > 2000 {
			tail = tail[len(tail)-2000:]
		}
		return "", fmt.Errorf("run %s %s: %w: %s", name, args[len(args)-1], err, strings.TrimSpace(tail))
	}
	return stdout.String(), nil
}
