package leasehold

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

var verbs = []string{"acquire", "renew", "release", "test", "check", "break", "unlock"}

const plain = "-._~/:@!$'()*,;="

// pathPart is a name as part of a path: slashes stay. Only the one before a last segment that could be taken for a verb is
// encoded. Held to sdk/vectors/names.jsonl.
func pathPart(name string) string {
	if at := strings.LastIndexByte(name, '/'); at >= 0 && slices.Contains(verbs, name[at+1:]) {
		return quote(name[:at], plain) + "%2F" + name[at+1:]
	}
	return quote(name, plain)
}

func queryValue(value string) string { return quote(value, "-._~") }

func quote(text, safe string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		isPlain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(safe, c) >= 0
		if isPlain {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// parseServers reads http://host:port or https://host:port, or several with commas between them.
func parseServers(text string) ([]string, error) {
	var found []string
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		server, err := parseServer(part)
		if err != nil {
			return nil, err
		}
		found = append(found, server)
	}
	if len(found) == 0 {
		return nil, usage("an address is needed, such as http://127.0.0.1:8080")
	}
	return found, nil
}

func parseServer(text string) (string, error) {
	full := text
	if !strings.Contains(text, "://") {
		full = "http://" + text
	}
	wrong := usage("%q is not a server: write http://host:port or https://host:port", text)
	read, err := url.Parse(full)
	if err != nil || (read.Scheme != "http" && read.Scheme != "https") {
		return "", wrong
	}
	isBare := (read.Path == "" || read.Path == "/") && read.RawQuery == "" && read.Fragment == "" && read.User == nil
	if read.Hostname() == "" || !isBare || strings.ContainsAny(text, " \t\r\n") {
		return "", wrong
	}
	port, host := read.Port(), read.Hostname()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[read.Scheme]
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return read.Scheme + "://" + host + ":" + port, nil
}

// Subtree is the name of the lock on a path and all below it: path:/srv/a/**.
func Subtree(path string) string { return "path:" + strings.TrimRight(path, "/") + "/**" }

// ByteRange is the name of the lock on bytes of a file, from start up to and not including end: inode:42@100..200.
func ByteRange(inode, start, end uint64) string {
	return fmt.Sprintf("inode:%d@%d..%d", inode, start, end)
}

// BytesFrom is the name of the lock on all bytes of a file from start on, beyond its end too.
func BytesFrom(inode, start uint64) string {
	if start == 0 {
		return fmt.Sprintf("inode:%d", inode)
	}
	return fmt.Sprintf("inode:%d@%d..", inode, start)
}
