"""Paraphrases of English prose: other words with the same meaning, in another order."""

from __future__ import annotations

import random
import re

SYNONYMS = """
about|concerning
achieve|accomplish
across|throughout
additional|further
aid|assistance|help
all|every one of
also|too
although|even though
America|the United States
annual|yearly
areas|regions
army|military
ask|request
begin|start
benefit|advantage
best|finest
big|large|great
billion dollars|billions
budget|spending plan
build|construct
business|commerce
businesses|companies
buy|purchase
cannot|can not
care|attention
carry out|execute|perform
causes|reasons
change|alter
children|kids|young people
citizens|people
cities|towns
come|arrive
commitment|pledge|promise
complete|finish
condition|state
Congress|the legislature|the House and the Senate
consider|examine
continue|keep on
cooperation|collaboration
cost|price|expense
country|nation
courage|bravery
create|make
danger|peril|risk
decide|determine
decrease|reduction
defense|protection
desire|wish
develop|advance
difficult|hard
duty|obligation
earn|make
economy|national economy
effort|attempt|endeavor
employment|work
end|finish|conclude
energy|power
enough|sufficient
entire|whole
establish|set up
every|each
example|instance
expand|enlarge
expenditures|spending|outlays
face|confront
fair|just
faith|trust|confidence
families|households
farmers|growers
fight|struggle
first|foremost
foreign|overseas
freedom|liberty
friendly|amicable
future|years ahead
get|obtain
give|provide|grant
goal|aim|objective
goods|products
Government|administration
great|important
grow|increase
growth|expansion
happen|occur
help|assist
hope|trust
however|nevertheless
ideas|proposals
important|significant
improve|better
in order to|so as to|to
increase|rise
industry|manufacturing
jobs|positions|employment
keep|maintain
large|big
last year|the past year
law|statute
laws|statutes
leaders|heads
live|reside
long|lengthy
make|produce
many|numerous|a lot of
means|ways
measures|steps
men and women|people
money|funds
more than|over
most|the majority of
must|have to|need to
nation|country
nations|countries
necessary|needed|required
need|require
new|fresh
now|today|at present
often|frequently
old|former
opportunity|chance
our|the nation's
part|portion|share
past|previous
pay|compensate
peace|tranquility
plan|program|scheme
power|authority
present|current
president|chief executive
problem|difficulty|issue
problems|difficulties|issues
progress|advances
proposal|suggestion
propose|suggest
prosperity|affluence
protect|safeguard|defend
provide|supply
public|common
purpose|aim
question|matter
raise|lift|increase
receive|get
recent|latest
recommend|advise|urge
reduce|cut|lower
reform|overhaul
report|account
responsibility|duty
result|outcome
right|correct
schools|places of learning
security|safety
seek|look for
send|transmit
serious|grave
several|various|a number of
shall|will
show|demonstrate
small|little
soon|shortly
spirit|temper
start|begin
steps|measures
strength|power
strong|powerful
subject|topic
success|achievement
support|back
system|arrangement
take|accept
taxes|levies
tell|inform
therefore|hence|for that reason
think|believe
those who|people who
threat|menace
through|by way of
time|period
together|jointly
tonight|this evening
trade|commerce
treaty|agreement|pact
true|genuine
try|attempt
understand|comprehend
until|till
upon|on
use|employ|make use of
very|extremely
vote|ballot
war|armed conflict
want|wish
we|all of us
welfare|well-being
which|that
while|whereas
work|labor
workers|working people
world|globe
year|twelvemonth
years|seasons
young|youthful
""".strip().splitlines()
"""Words and phrases of one meaning, or nearly so, on each line."""

_OTHERS = {
    word.lower(): [other for other in line.split("|") if other != word]
    for line in SYNONYMS
    for word in line.split("|")[:1]
}
_WORD = re.compile(r"\b(" + "|".join(sorted(map(re.escape, _OTHERS), key=len, reverse=True)) + r")\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.?!])\s+")


def paraphrased(text: str, rng: random.Random, share: float = 0.7) -> str:
    """Replace a share of the words that have synonyms, and put some sentences elsewhere."""
    sentences = [_turned(_reworded(sentence, rng, share), rng) for sentence in _SENTENCE.split(text)]
    if len(sentences) > 2:
        moved = sentences.pop(rng.randrange(len(sentences)))
        sentences.insert(rng.randrange(len(sentences) + 1), moved)
    return " ".join(sentences)


def _reworded(sentence: str, rng: random.Random, share: float) -> str:
    def other(match: re.Match[str]) -> str:
        word = match[0]
        if rng.random() >= share:
            return word
        found = rng.choice(_OTHERS[word.lower()])
        return found[0].upper() + found[1:] if word[0].isupper() else found

    return _WORD.sub(other, sentence)


def _turned(sentence: str, rng: random.Random) -> str:
    """Put the first clause last, sometimes, if the sentence has two clauses."""
    first, comma, rest = sentence.partition(", ")
    if not comma or "," in rest or not rest.endswith(".") or not len(first.split()) >= 3 or rng.random() < 0.5:
        return sentence
    return f"{rest[0].upper()}{rest[1:-1]}, {first[0].lower()}{first[1:]}."
