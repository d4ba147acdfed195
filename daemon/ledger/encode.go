// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// appendRecord appends one line in the form that encoding/json gives a journal.Record. It is written by hand because it
// stands in the hot path of every container creation: no reflection and no allocation but the buffer's growth.
func appendRecord(b []byte, r *journal.Record, up uint64) []byte {
	t := r.Time
	if t.IsZero() {
		t = now()
	}
	b = append(b, `{"t":"`...)
	b = t.AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	b = appendUint(b, "up", up)
	b = appendField(b, "boot", r.Boot)
	b = appendUint(b, "ino", r.Inode)
	b = append(b, `,"target":`...)
	b = appendTarget(b, &r.Target)
	b = appendField(b, "knob", r.Knob)
	b = appendField(b, "key", r.Key)
	b = appendList(b, "files", r.Files)
	b = appendList(b, "orig", r.Original)
	b = appendList(b, "wrote", r.Written)
	b = appendField(b, "base", r.Base)
	b = appendField(b, "want", r.Want)
	b = appendField(b, "owner", r.Owner)
	b = appendField(b, "reason", r.Reason)
	b = append(b, `,"via":`...)
	b = appendString(b, string(r.Via))
	b = appendField(b, "err", r.Err)
	b = appendUint(b, "gen", r.Gen)
	if r.Theirs {
		b = append(b, `,"theirs":true`...)
	}
	if r.Judged {
		b = append(b, `,"judged":true`...)
	}
	b = appendField(b, "found", r.Found)
	b = appendField(b, "source", r.Source)
	return append(b, "}\n"...)
}

func appendTarget(b []byte, t *plan.Target) []byte {
	b = append(b, `{"Level":`...)
	b = strconv.AppendUint(b, uint64(t.Level), 10)
	b = appendField(b, "Cgroup", t.Cgroup)
	b = appendField(b, "Pod", t.Pod)
	b = appendField(b, "Container", t.Container)
	b = appendField(b, "Name", t.Name)
	return append(b, '}')
}

// appendField appends a string field that is left out when empty.
func appendField(b []byte, name, v string) []byte {
	if v == "" {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return appendString(b, v)
}

func appendUint(b []byte, name string, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return strconv.AppendUint(b, v, 10)
}

func appendList(b []byte, name string, vs []string) []byte {
	if len(vs) == 0 {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':', '[')
	for i, v := range vs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, v)
	}
	return append(b, ']')
}

const hexDigits = "0123456789abcdef"

// appendString appends a JSON string. Bytes that are no UTF-8 become U+FFFD, as in encoding/json.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		n := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, n = utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		b = append(b, s[start:i]...)
		switch {
		case c >= utf8.RuneSelf:
			b = append(b, `\ufffd`...)
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i += n
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
