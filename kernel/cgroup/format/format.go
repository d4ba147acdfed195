// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package format reads the text formats of cgroup files: single numbers, flat lists and nested keys.
//
// Every function is pure, takes the bytes of a file and does not allocate unless it has to return a text. Formats are
// those of Documentation/admin-guide/cgroup-v2.rst, section "Interface Files". It imports model and the standard
// library only.
package format

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/topo"
)

// Unlimited1 is the least that a v1 memory file shows for "no limit": the largest multiple of a page below 2⁶³, of 64 KiB (arm64, ppc64) or less.
const Unlimited1 = 0x7FFFFFFFFFFF0000

// ErrFormat is wrapped by every parse error.
var ErrFormat = errors.New("unexpected content")

// Int reads one number; "max" and v1's largest numbers are -1.
//
//	"max" → -1   "9223372036854771712" → -1   "4096" → 4096
func Int(raw []byte) (int64, error) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "max" {
		return -1, nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %.64q is not a number", ErrFormat, raw)
	}
	if n >= Unlimited1 {
		return -1, nil
	}
	return n, nil
}

// Word is the i-th word of a line, nil when there are fewer. cpu.max is "$MAX $PERIOD".
func Word(raw []byte, i int) []byte {
	word, rest := cut(raw)
	for ; i > 0 && word != nil; i-- {
		word, rest = cut(rest)
	}
	return word
}

// cut takes the first word off a line; it is nil where none is left.
func cut(raw []byte) (word, rest []byte) {
	raw = bytes.TrimLeft(raw, " \t\n")
	end := bytes.IndexAny(raw, " \t\n")
	if end < 0 {
		end = len(raw)
	}
	if end == 0 {
		return nil, nil
	}
	return raw[:end], raw[end:]
}

// Line is the rest of the line that starts with the key: Line("8:0 rbps=1 wbps=max\n", "8:0") is "rbps=1 wbps=max".
func Line(raw []byte, key string) ([]byte, bool) {
	for len(raw) > 0 {
		line := raw
		if i := bytes.IndexByte(raw, '\n'); i >= 0 {
			line, raw = raw[:i], raw[i+1:]
		} else {
			raw = nil
		}
		line = bytes.TrimSpace(line)
		if len(line) > len(key) && string(line[:len(key)]) == key && line[len(key)] == ' ' {
			return bytes.TrimSpace(line[len(key):]), true
		}
	}
	return nil, false
}

// Pair is the value of "name=value" in a line of such words.
func Pair(line []byte, name string) ([]byte, bool) {
	for {
		var w []byte
		if w, line = cut(line); w == nil {
			return nil, false
		}
		if len(w) > len(name) && string(w[:len(name)]) == name && w[len(name)] == '=' {
			return w[len(name)+1:], true
		}
	}
}

// IOMax reads one field of io.max ("8:0 rbps=2097152 wbps=max riops=max wiops=120"); a device or a field that is not
// listed is unlimited.
func IOMax(raw []byte, device, field string) (int64, error) {
	line, ok := Line(raw, device)
	if !ok {
		return -1, nil
	}
	v, ok := Pair(line, field)
	if !ok {
		return -1, nil
	}
	return Int(v)
}

// Weights reads io.weight or blkio.cost.weight ("default 100\n8:0 50"). An empty device asks for the default; a device
// without a line of its own has the default.
func Weights(raw []byte, device string) (int64, error) {
	if device != "" {
		if line, ok := Line(raw, device); ok {
			if string(line) != "default" {
				return Int(line)
			}
		}
	}
	if line, ok := Line(raw, "default"); ok {
		return Int(line)
	}
	if Word(raw, 1) == nil && len(raw) > 0 {
		return Int(raw)
	}
	return 0, fmt.Errorf("%w: no default weight in %.64q", ErrFormat, raw)
}

// Latency reads io.latency ("8:0 target=75000"); a device that is not listed has no target, 0.
func Latency(raw []byte, device string) (int64, error) {
	line, ok := Line(raw, device)
	if !ok {
		return 0, nil
	}
	v, ok := Pair(line, "target")
	if !ok {
		return 0, fmt.Errorf("%w: no target in %.64q", ErrFormat, line)
	}
	n, err := Int(v)
	return max(n, 0), err
}

// Throttle reads a v1 blkio.throttle file ("8:0 1048576"); a device that is not listed, or with 0 or -1, is unlimited.
func Throttle(raw []byte, device string) (int64, error) {
	line, ok := Line(raw, device)
	if !ok {
		return -1, nil
	}
	n, err := Int(line)
	if err == nil && n <= 0 {
		n = -1
	}
	return n, err
}

// Cost reads the line of a disk in io.cost.qos or io.cost.model; a disk without one is as the kernel has it by itself.
func Cost(raw []byte, k plan.Knob, device string) plan.Value {
	line, ok := Line(raw, device)
	if !ok {
		return plan.Text(plan.CostOff(k))
	}
	return plan.Text(string(line))
}

// CostLine is the text that makes a disk's line what a setting of [plan.IOCostQoS] or [plan.IOCostModel] says.
func CostLine(s plan.Setting) (string, error) {
	words := plan.CostWords(s.Value.String())
	pairs := words != "" && !strings.Contains(words, "\n")
	for w := range strings.FieldsSeq(words) {
		pairs = pairs && strings.Contains(w, "=")
	}
	if !plan.IsDevice(s.Key) || !pairs {
		return "", fmt.Errorf("%s: %q of %q is no line of a disk", s.Knob, words, s.Key)
	}
	return s.Key + " " + words, nil
}

// SameList compares two CPU or node lists as sets. Equal texts are not parsed, so the usual case costs nothing.
func SameList(want string, raw []byte) bool {
	if string(raw) == want {
		return true
	}
	a, err := topo.ParseCPUSet(want)
	if err != nil {
		return false
	}
	b, err := topo.ParseCPUSet(string(raw))
	return err == nil && a.Equal(b)
}

// Value parses a number and wraps it.
func Value(n int64, err error) (plan.Value, error) { return plan.Int(n), err }
