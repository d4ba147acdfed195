// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

// bindModes are the options of a bind that Docker knows; "bind" and "rbind", which NRI needs, are its default.
var bindModes = []string{"ro", "rw", "private", "rprivate", "shared", "rshared", "slave", "rslave"}

// array writes list and more as a JSON array; the elements of list keep their bytes.
func array(list []json.RawMessage, more ...[]byte) []byte {
	out := []byte{'['}
	for i, e := range slices.Concat(list, raws(more)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}

func raws(list [][]byte) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out
}

// pending is the array under key as it stands after the edits so far.
func (e *editor) pending(key string, list []json.RawMessage) []json.RawMessage {
	for _, f := range e.fields {
		var out []json.RawMessage
		if f.key == key && json.Unmarshal(f.text, &out) == nil {
			return out
		}
	}
	return list
}

// putEnv sets a variable in its place or adds it.
func (c *Create) putEnv(e *editor, s *plan.Setting) bool {
	if s.Key == "" || strings.ContainsAny(s.Key, "=\x00") {
		return false
	}
	if e.envAt == nil && !c.readEnv(e) {
		return false
	}
	i, ok := e.envAt[s.Key]
	if !ok {
		i = len(e.env)
		e.env, e.envAt[s.Key] = append(e.env, nil), i
	}
	e.env[i] = quote(s.Key + "=" + s.Value.String())
	return true
}

// readEnv reads the body's variables once for all settings. Of a name that stands there twice the first place counts.
func (c *Create) readEnv(e *editor) bool {
	v, err := c.root.get("Env")
	if err != nil || v != nil && json.Unmarshal(v, &e.env) != nil {
		return false
	}
	e.envAt = make(map[string]int, len(c.env))
	for i, kv := range c.env {
		name, _, _ := strings.Cut(kv, "=")
		if _, ok := e.envAt[name]; !ok {
			e.envAt[name] = i
		}
	}
	return true
}

// putThrottle sets a device's rate. The API names devices by path, plans by number; "no limit" is what a new container has.
func (e *editor) putThrottle(key string, list []json.RawMessage, s *plan.Setting) bool {
	path := diskPath(e.view, s.Key)
	if path == "" || s.Value.Int() < 1 {
		return false
	}
	entry := []byte(`{"Path":` + string(quote(path)) + `,"Rate":` + strconv.FormatInt(s.Value.Int(), 10) + `}`)
	list = slices.Clone(e.pending(key, list))
	for i := range list {
		var have struct{ Path string }
		if json.Unmarshal(list[i], &have) == nil && e.view.Kernel.Disks[have.Path] == s.Key {
			list[i] = entry
			e.fields = upsert(e.fields, key, array(list))
			return true
		}
	}
	e.fields = upsert(e.fields, key, array(list, entry))
	return true
}

// diskPath is the first path in /dev of a device "major:minor", "" when none is known.
func diskPath(v *node.View, device string) string {
	best := ""
	for name, number := range v.Kernel.Disks {
		if !strings.HasPrefix(name, "/") {
			name = "/dev/" + name
		}
		if number == device && (best == "" || name < best) {
			best = name
		}
	}
	return best
}

// putDevice adds a device node. Key is the path in the container, value "TYPE MAJOR:MINOR ACCESS": "c 195:0 rwm". The API
// wants the node's path on the host, so a device that the probe has not seen cannot be carried.
func (e *editor) putDevice(s *plan.Setting) bool {
	words := strings.Fields(s.Value.String())
	if len(words) < 2 || s.Key == "" || words[0] != "c" {
		return false
	}
	access := "rwm"
	if len(words) > 2 {
		access = words[2]
	}
	path := ""
	for _, d := range e.view.Kernel.Devices {
		if strconv.FormatInt(d.Major, 10)+":"+strconv.FormatInt(d.MinorNumber, 10) == words[1] && (path == "" || d.Path == s.Key) {
			path = d.Path
		}
	}
	list := e.pending("Devices", e.host.Devices)
	for _, d := range list {
		var have struct{ PathInContainer string }
		if json.Unmarshal(d, &have) == nil && have.PathInContainer == s.Key {
			return false
		}
	}
	if path == "" {
		return false
	}
	entry := `{"PathOnHost":` + string(quote(path)) + `,"PathInContainer":` + string(quote(s.Key)) + `,"CgroupPermissions":` + string(quote(access)) + `}`
	e.fields = upsert(e.fields, "Devices", array(list, []byte(entry)))
	return true
}

// putCDI requests a CDI device, which daemons know from API 1.44 on.
func (e *editor) putCDI(s *plan.Setting) bool {
	if !e.view.Runtime.Fields.CDI {
		return false
	}
	name := s.Value.String()
	if name == "" {
		name = s.Key
	}
	entry := []byte(`{"Driver":"cdi","DeviceIDs":[` + string(quote(name)) + `]}`)
	e.fields = upsert(e.fields, "DeviceRequests", array(e.pending("DeviceRequests", e.host.DeviceRequests), entry))
	return true
}

// putMount adds a bind. Key is the destination, value "SOURCE OPTION[,OPTION…]": "/run/mps bind,rw". A destination that is
// taken, and paths that the colon-separated form cannot carry, are refused.
func (e *editor) putMount(s *plan.Setting) bool {
	source, options, _ := strings.Cut(s.Value.String(), " ")
	if !strings.HasPrefix(source, "/") || !strings.HasPrefix(s.Key, "/") || strings.Contains(source+s.Key, ":") {
		return false
	}
	var modes []string
	for o := range strings.SplitSeq(options, ",") {
		switch {
		case o == "" || o == "bind" || o == "rbind":
		case slices.Contains(bindModes, o):
			modes = append(modes, o)
		default:
			return false
		}
	}
	var have []json.RawMessage
	for _, b := range e.host.Binds {
		have = append(have, quote(b))
	}
	have = e.pending("Binds", have)
	for _, b := range have {
		var bind string
		if json.Unmarshal(b, &bind) != nil {
			return false
		}
		if part := strings.Split(bind, ":"); len(part) > 1 && part[1] == s.Key {
			return false
		}
	}
	for _, m := range e.host.Mounts {
		if m.Target == s.Key {
			return false
		}
	}
	bind := source + ":" + s.Key
	if len(modes) > 0 {
		bind += ":" + strings.Join(modes, ",")
	}
	e.fields = upsert(e.fields, "Binds", array(have, quote(bind)))
	return true
}
