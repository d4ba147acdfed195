// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// defaultImports are the drop-ins that containerd reads without any configuration file, from 2.2 on (its `config default`). A file
// without `imports` has none, whatever lies in conf.d.
const defaultImports = "conf.d/*.toml"

// maxConfigs bounds the files that are read: imports may name each other.
const maxConfigs = 64

// text is a file that was read.
type text struct{ path, content string }

// containerdConfig reads containerd's configuration and what it imports, in the order in which they hold.
func (e *env) containerdConfig(config string, plugin *status.Entry) ([]text, error) {
	var out []text
	todo := []string{config}
	if !exists(e.path(config)) && !oldContainerd(plugin) {
		todo = e.matches(config, defaultImports)
	}
	for len(todo) > 0 && len(out) < maxConfigs {
		path := todo[0]
		todo = todo[1:]
		if slices.ContainsFunc(out, func(t text) bool { return t.path == e.path(path) }) {
			continue
		}
		b, err := readHead(e.path(path))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, text{e.path(path), string(b)})
		for _, pattern := range imports(string(b)) {
			todo = append(todo, e.matches(path, pattern)...)
		}
	}
	return out, nil
}

// matches are the host's files that a pattern names; a relative one begins at the file that has it.
func (e *env) matches(file, pattern string) (out []string) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(file), pattern)
	}
	root := e.path("/")
	for _, found := range glob(e.path(pattern)) {
		out = append(out, "/"+strings.TrimPrefix(strings.TrimPrefix(found, root), "/"))
	}
	return out
}

// quoted is a string of TOML, basic or literal.
var quoted = regexp.MustCompile(`"([^"\n]*)"|'([^'\n]*)'`)

// imports reads the list of that name before the first table; it may go over several lines.
func imports(text string) (out []string) {
	list := ""
	for l := range strings.Lines(text) {
		l, _, _ = strings.Cut(l, "#")
		l = strings.TrimSpace(l)
		k, v, isPair := strings.Cut(l, "=")
		switch {
		case list != "":
			list += l
		case strings.HasPrefix(l, "["):
			return nil
		case isPair && strings.TrimSpace(k) == "imports":
			list = strings.TrimSpace(v)
		}
		if strings.HasPrefix(list, "[") && strings.HasSuffix(list, "]") {
			break
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(list, -1) {
		out = append(out, m[1]+m[2])
	}
	return out
}

// readHead reads at most 1 MiB of a file.
func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<20))
}

// keyIn is the value of a configuration's key, as it is written there, and the file that sets it.
type keyIn struct {
	set         bool
	value, file string
}

// keyOf is what holds of a key: the last file that sets it. In containerd 1.x an imported file replaces the whole table of a plugin
// (its server's mergeConfig), so that what it leaves out has its default again.
func keyOf(files []text, plugin *status.Entry, key string, plugins ...string) (out keyIn) {
	for _, f := range files {
		for _, p := range plugins {
			if oldContainerd(plugin) && hasTable(f.content, p) {
				out = keyIn{}
			}
			if set, value := tomlKey(f.content, p, key); set {
				out = keyIn{set, value, f.path}
			}
		}
	}
	return out
}

// flagIn is a boolean of a configuration and the file that sets it.
type flagIn struct {
	set, on bool
	file    string
}

func flagOf(files []text, plugin *status.Entry, key string, plugins ...string) flagIn {
	k := keyOf(files, plugin, key, plugins...)
	return flagIn{k.set, k.value == "true", k.file}
}

// folderOf is a folder of the host that a key names, else the default.
func folderOf(files []text, plugin *status.Entry, key, section, absent string) string {
	if k := keyOf(files, plugin, key, section); k.set {
		if m := quoted.FindStringSubmatch(k.value); m != nil && m[1]+m[2] != "" {
			return m[1] + m[2]
		}
	}
	return absent
}

// hasTable reports whether a text has a plugin's table or one below it.
func hasTable(text, plugin string) bool {
	for l := range strings.Lines(text) {
		if name, ok := tableOf(l); ok && (name == "plugins."+plugin || strings.HasPrefix(name, "plugins."+plugin+".")) {
			return true
		}
	}
	return false
}

// tableOf is the name in a table's header, without quotes.
func tableOf(line string) (string, bool) {
	line, _, _ = strings.Cut(line, "#")
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "[") {
		return "", false
	}
	return strings.Trim(strings.NewReplacer(`"`, "", `'`, "", " ", "").Replace(line), "[]"), true
}

// tomlKey finds a key of a plugin's section in a TOML text: the header in any quoting, then the section's own keys.
func tomlKey(text, plugin, key string) (set bool, value string) {
	in := false
	for l := range strings.Lines(text) {
		if name, ok := tableOf(l); ok {
			in = name == "plugins."+plugin
			continue
		}
		l, _, _ = strings.Cut(l, "#")
		k, v, isPair := strings.Cut(l, "=")
		if in && isPair && strings.TrimSpace(k) == key {
			set, value = true, strings.TrimSpace(v)
		}
	}
	return set, value
}
